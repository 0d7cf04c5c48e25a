# SPDX-License-Identifier: Apache-2.0
"""What the tests share."""
import pytest

import ranks


@pytest.fixture(params=[(2, "threads"), (4, "threads"), (2, "processes"), (4, "processes")], ids=lambda param: f"{param[0]}-{param[1]}")
def on_ranks(request):
    """Runs function(comm) on every rank of a new world; function is one of the test's module."""
    n, kind = request.param
    return lambda function: ranks.on_threads(n, function) if kind == "threads" else ranks.on_processes(n, function)


def pytest_sessionfinish(session, exitstatus):
    """No skip in here: whoever cannot run a test says so to ctest (run.py)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter.stats.get("skipped"):
        session.exitstatus = 1
