"""An S3 store of moto on loopback, in a process of its own.

Libraries that hold Python's lock during a request would otherwise wait for a server that waits for them.
Each line on standard input is a command: ``count`` answers with the number of requests so far, ``refuse
STATUS CODE AFTER`` refuses all but the next AFTER requests, ``answer`` ends that. The end of input ends it.
"""

from __future__ import annotations

import logging
import sys
from typing import Any


class Requests:
    """A WSGI application that counts requests and may refuse them."""

    def __init__(self, app: Any) -> None:
        self.count = 0
        self.error: tuple[str, str] | None = None
        self.until = 0
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        self.count += 1
        if self.error is None or self.count <= self.until:
            return self._app(environ, start_response)
        status, code = self.error
        body = f"<Error><Code>{code}</Code><Message>{code} said</Message></Error>".encode()
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{status} {code}", [("Content-Type", "application/xml")])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def command(self, words: list[str]) -> None:
        if words[0] == "refuse":
            self.until, self.error = self.count + int(words[3]), (words[1], words[2])
        elif words[0] == "answer":
            self.error = None


def main() -> None:
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    requests = Requests(create_backend_app("s3"))  # the default looks up all services at each request
    server._server.app = requests
    print(port, flush=True)
    for line in sys.stdin:
        requests.command(line.split())
        print(requests.count, flush=True)
    server.stop()


if __name__ == "__main__":
    main()
