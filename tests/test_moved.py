"""Import paths of version 0.1 keep working, with a warning."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import resolve_name

import pytest

from rrnn import moved


@pytest.mark.parametrize("old", moved.MODULES)
def test_an_old_module_is_importable_and_warns(old: str) -> None:
    if "kernels" in old:
        pytest.importorskip("triton")
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now rrnn") as caught:
        import_module(old)
    assert caught
    for new in moved.MODULES[old].split():
        assert import_module(new).__name__ == new, "a row points to a module that does not exist itself"
        assert new not in moved.MODULES


@pytest.mark.parametrize("old", moved.NAMES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_name_is_what_replaced_it(old: str) -> None:
    assert resolve_name(old) is resolve_name(moved.NAMES[old])


def test_old_modules_and_names_in_a_process_of_their_own() -> None:
    script = """
import sys, warnings
from rrnn import moved

moved.MODULES["rrnn.old"] = "rrnn.errors rrnn.automata"
moved.MODULES["rrnn.old.inner"] = "rrnn.errors"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from rrnn.old import Cell, CellError
    import rrnn.old.inner
assert [str(w.message) for w in caught] == [
    "rrnn.old is now rrnn.errors and rrnn.automata", "rrnn.old.inner is now rrnn.errors"]
assert all(w.filename == "<string>" for w in caught), [w.filename for w in caught]
assert CellError is rrnn.old.inner.CellError is sys.modules["rrnn.errors"].CellError
try:
    from rrnn.old import nothing
except ImportError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError("a name that never was is found")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
