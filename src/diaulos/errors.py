"""The errors that a user can meet, in one style.

Every message says what was wrong and where, the rule that was broken, and what would work.
The classes differ by the exit status with which the command line ends.
"""


class DiaulosError(Exception):
    """Base of all errors that are meant to be read by a user."""

    exit_status = 2


class InputError(DiaulosError, ValueError):
    """An input breaks a rule: a file, a flag, an argument. Exit status 2.

    `what` names the value, `rule` says what it must be, `remedy` what would work, and `where`
    is the file and the place in it, added by whoever knows it.
    """

    def __init__(self, what: str, rule: str = "", remedy: str = "", *, where: str = "") -> None:
        self.what, self.rule, self.remedy, self.where = what, rule, remedy, where
        parts = [part for part in (what, rule, remedy) if part]
        super().__init__((f"{where}: " if where else "") + "; ".join(parts))

    def at(self, where: str) -> "InputError":
        """The same error with its place in front: `plan.json: $.stages[1]`."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, self.rule, self.remedy, where=place)


class InfeasibleError(DiaulosError):
    """No answer exists within the limits that were given. Exit status 1."""

    exit_status = 1


class CheckError(DiaulosError):
    """A plan, a schedule or a run does not hold what it promises. Exit status 1."""

    exit_status = 1
