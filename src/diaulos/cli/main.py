"""The command line: which commands there are, and how errors become exit statuses."""

import sys
from collections.abc import Mapping
from types import MappingProxyType

from cyclopts import App, CycloptsError

from diaulos._version import __version__
from diaulos.errors import DiaulosError

_INTERRUPTED = 130
_EXTRAS: Mapping[str, str] = MappingProxyType(
    {"torch": "train", "transformers": "hf", "ortools": "solver"}
)
"""Which extra brings a package that some commands need."""


def make_app() -> App:
    """The application; each command's module is imported when the command is run."""
    app = App(
        name="diaulos",
        version=__version__,
        help="Find the best way to spread the training of a deep network over many accelerators, "
        "say why and what it will cost, and train it that way.",
        help_epilogue="Exit status: 0 done, 1 no feasible answer or failed check, 2 bad input.",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, summary in (
        ("demo", "Profile, plan, simulate and train a small GPT on this machine."),
        ("profile", "Measure the layers of a model on this machine."),
        ("estimate", "Step time and memory of one given configuration, without running it."),
        ("validate", "Recompute published measurements, and say how far off the estimates are."),
        ("plan", "Find the fastest way to train a model, or to cut a layer graph, on a cluster."),
        ("frontier", "The best time against devices, or against their memory."),
        ("compare", "Planners and ablations side by side on one problem."),
        ("check", "Check and price a plan file again."),
        ("explain", "Why a plan is as fast as it is, and what would make it faster."),
        ("simulate", "Simulate schedules of a plan, or of equal stages for learning."),
        ("train", "Train what a run file says."),
        ("clusters", "List the devices that clusters can be made of."),
        ("calibrate", "Measure this machine, so that prices follow from it."),
    ):
        app.command(f"diaulos.cli.{name}:{name}", name=name, help=summary)
    trace = App(name="trace", help="What planned and measured timelines tell.")
    trace.command("diaulos.cli.trace:diff", name="diff", help="Where a run differs from its plan.")
    app.command(trace)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command and end the process with its exit status."""
    app = make_app()
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _fail(f"{error}\nsee diaulos --help", 2)
    except DiaulosError as error:
        _fail(str(error), error.exit_status)
    except ImportError as error:
        package = _missing_package(error)
        if package not in _EXTRAS:
            raise
        extra = _EXTRAS[package]
        _fail(f"this command needs {package}; install it with pip install 'diaulos[{extra}]'", 2)
    except KeyboardInterrupt:
        _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        sys.exit(1)


def _missing_package(error: ImportError) -> str:
    """The package that could not be found, where that is why a command's module is not there."""
    cause = error.__cause__ or error
    name = cause.name if isinstance(cause, ImportError) else None
    return (name or "").split(".")[0]


def _fail(message: str, status: int) -> None:
    print(f"diaulos: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(status)
