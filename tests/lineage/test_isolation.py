"""The older protocols are in a room that nothing else loads."""

from __future__ import annotations

import subprocess
import sys


def test_a_node_and_the_command_line_load_no_older_protocol() -> None:
    program = "import sys, cluster.node, quorate.app; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "cluster.node" in loaded
    assert not {name for name in loaded if name.partition(".")[0] == "lineage"}


def test_a_node_that_serves_neither_loads_none_of_it_while_it_runs_and_offers_none_of_it() -> None:
    """No import, no port, no line in ApiVersions: it answers as one that has never heard of them."""
    program = """
import sys
from cluster.simulator import Machine, Network, WireClient, World
from wire.apis import ApiKey
from wire.messages.api_versions import ApiVersionsRequest

def served(**settings):
    world = World(1)
    network = Network(world)
    machine = Machine(world, network, settings=settings)
    machine.boot_until_ready()
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = WireClient(world, network, "client").ask(ApiKey.API_VERSIONS, 3, request)
    return [repr(one) for one in answer.api_keys], sorted(port for _, port in network.listeners)

versions, ports = served()
assert len(ports) == 1, ports
assert not [name for name in sys.modules if name.split(".")[0] == "lineage" or "cluster.lineage" in name]
assert served(lineage_push_port=9492, lineage_rewrite_port=9592) == (versions, sorted([*ports, 9492, 9592]))
assert "cluster.lineage.push" in sys.modules
print("both compared")
"""
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout == "both compared\n", ran.stderr
