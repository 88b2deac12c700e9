"""The OpenAPI document of the routes."""

from __future__ import annotations

from cluster.http.routes import ROUTES, Route
from cluster.http.schemas import ERROR, Schema

STATUS_WORDS = {
    307: "Another node leads, or has the lease; Location has its URL.",
    400: "A parameter or the body is unknown or wrong.",
    403: "The request comes from another site's page, its Host is not a name of the node, or the node's "
    "settings do not allow it.",
    404: "The resource does not exist.",
    408: "The body did not arrive in time.",
    409: "Send the request to another node (`leader`), or the cluster cannot do it now.",
    413: "The body is too large.",
    415: "The body must be application/json.",
    410: "These entries were removed by retention.",
    429: "Too many requests are waiting, or too many leases or feeds are open.",
    503: "A shard is not ready, or the node is busy: try again.",
}


def openapi(version: str) -> Schema:
    """Return the OpenAPI 3.1 document of ROUTES."""
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quorate",
            "version": version,
            "description": "One node: health, metrics, groups, topics, the committed log; who leads.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(route: Route) -> Schema:
    content: Schema = {
        media: ({"schema": route.answer} if route.answer is not None else {}) for media in route.media
    }
    responses: Schema = {"200": {"description": route.summary, "content": content}}
    for status in (*route.refusals, 503) if 503 not in route.refusals else route.refusals:
        schema = route.answer if route.name == "readyz" else {"$ref": "#/components/schemas/Error"}
        responses[str(status)] = {
            "description": STATUS_WORDS[status],
            "content": {"application/json": {"schema": schema}},
        }
    parameters = [
        {
            "name": parameter.name,
            "in": "path" if parameter.in_path else "query",
            "required": parameter.in_path,
            "description": parameter.reason,
            "schema": parameter.schema(),
        }
        for parameter in route.parameters
    ]
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    }
    if route.method == "POST":
        properties = {field.name: {**field.schema(), "description": field.reason} for field in route.fields}
        body = {"type": "object", "properties": properties, "additionalProperties": False}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
