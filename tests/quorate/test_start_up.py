"""The modules that a process loads at start-up, as loading delays the start of every cluster."""

import subprocess
import sys


def modules_after(imports: str) -> set[str]:
    """Return the names of all modules that a fresh process has loaded after these imports."""
    program = f"import sys\n{imports}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_loads_no_room_and_no_http_client() -> None:
    loaded = modules_after("import quorate.app")
    assert not loaded & {"records", "wire", "coordinator", "raftlog", "cluster", "urllib.request", "asyncio"}


def test_a_launcher_starts_its_nodes_without_loading_what_only_they_need() -> None:
    refused = "import quorate.app, cluster.launching.supervisor\nquorate.app.run(['up', '--nodes', '2'])"
    loaded = modules_after(refused)
    assert "cluster.launching.launcher" in loaded
    needless = {
        "records",
        "wire",
        "asyncio",
        "pysyncobj",
        "raftlog.transport.links",
        "urllib.request",
        "pydantic",
    }
    assert not loaded & needless


def test_a_node_serves_kafka_before_it_loads_http() -> None:
    loaded = modules_after("import cluster.main")
    assert not loaded & {"aiohttp", "urllib.request", "typer", "cluster.launching.launcher"}
