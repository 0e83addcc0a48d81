"""`diaulos train --dry-run`: what a run would be, without its processes."""

from rich.table import Table

from diaulos.cli.output import make_console
from diaulos.errors import InfeasibleError
from diaulos.schedules.actions import Kind
from diaulos.training.dry_run import DryRun, RankAccount, dry_run
from diaulos.training.run_file import RunFile
from diaulos.units import format_bytes

_KINDS = ("weights", "versions", "masters", "gradients", "optimizer", "activations")


def show_dry_run(run: RunFile) -> None:
    """Print what each rank would hold and do; an `InfeasibleError` where one cannot hold it."""
    console = make_console()
    found = dry_run(run.job, run.cluster)
    job = run.job
    console.print(
        f"{job.schedule}: {job.updates} updates on {job.grid.ranks} ranks, "
        f"{job.tokens_per_update:,} tokens each, {job.precision.value}; the schedule of "
        f"{found.checked_batches} batches is checked"
    )
    for stage, form in enumerate(found.edges):
        console.print(f"stage {stage} to {stage + 1}: {form}", markup=False)
    console.print(_holdings(found))
    console.print(_work(found))
    tight = [account for account in found.accounts if not account.fits]
    if tight:
        worst = max(tight, key=lambda account: account.total_bytes / account.limit_bytes)
        raise InfeasibleError(
            f"rank {worst.ranks[0]} would hold {format_bytes(worst.total_bytes)}, and its device "
            f"has {format_bytes(worst.limit_bytes)}: plan again with what it holds, or recompute"
        )
    console.print(f"nothing was started; diaulos train {run.path} runs it", soft_wrap=True)


def _holdings(found: DryRun) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("ranks", "stages", "layers"):
        table.add_column(name)
    for name in ("parameters", *_KINDS, "in all", "of"):
        table.add_column(name, justify="right", no_wrap=True)
    for account in found.accounts:
        table.add_row(
            _ranks(account),
            ", ".join(map(str, account.stages)),
            _layers(account),
            f"{account.parameters:,}",
            *(format_bytes(account.bytes_by_kind[kind]) for kind in _KINDS),
            format_bytes(account.total_bytes),
            format_bytes(account.limit_bytes),
        )
    return table


def _work(found: DryRun) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("ranks")
    table.add_column("in flight", justify="right")
    kinds = [kind for kind in Kind if any(kind in own.actions_per_batch for own in found.accounts)]
    for kind in kinds:
        table.add_column(kind.name.lower().replace("_", " "), justify="right")
    for account in found.accounts:
        counts = (account.actions_per_batch.get(kind) for kind in kinds)
        table.add_row(
            _ranks(account),
            str(account.in_flight),
            *("" if count is None else f"{count:g} a batch" for count in counts),
        )
    return table


def _ranks(account: RankAccount) -> str:
    first, last = account.ranks[0], account.ranks[-1]
    return str(first) if first == last else f"{first}-{last}"


def _layers(account: RankAccount) -> str:
    if len(account.stages) > 1 or len(account.layers) < 3:
        return ", ".join(account.layers)
    return f"{account.layers[0]} ... {account.layers[-1]}"
