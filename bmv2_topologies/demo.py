"""``make demo``: the same training run under plain Gloo and through the switch, compared.

Exits non-zero when a run fails, when the switch's counters do not match what the workers sent, or when
the two runs do not learn the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from netreduce.topologies import launcher, reports
from netreduce.topologies.processes import ServiceError, die_with_parent

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "train_digits.py"
ACCURACY_TOLERANCE = 0.02
"""Seven of the 360 test images: what rounding differences of the sums may change."""


@dataclass(frozen=True)
class Metrics:
    """What one run of the example recorded."""

    losses: list[float]
    """Mean training loss of every step."""
    accuracies: list[float]
    """Test accuracy after every epoch, 0..1."""
    seconds: float

    @classmethod
    def read(cls, path: Path) -> "Metrics":
        return cls(**json.loads(path.read_text()))


def train_with_gloo(workers: int, arguments: list[str], folder: Path) -> int:
    """The same script under torchrun alone, whose own files go to `folder`; returns the exit code."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NETREDUCE_")}
    environment.setdefault("OMP_NUM_THREADS", "1")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(workers), "--log-dir", str(folder), str(SCRIPT), *arguments,
    ]  # fmt: skip
    return subprocess.run(command, env=environment, preexec_fn=die_with_parent(), check=False).returncode


def comparison_table(gloo: Metrics, switch: Metrics) -> Table:
    """The two runs side by side."""
    table = Table(title="same script, same seed", title_justify="left")
    table.add_column("")
    table.add_column("plain Gloo", justify="right")
    table.add_column("through the switch", justify="right")
    table.add_column("apart by", justify="right")

    def row(name: str, left: float, right: float, form: str, apart_form: str) -> None:
        table.add_row(name, format(left, form), format(right, form), format(abs(left - right), apart_form))

    row("test accuracy", gloo.accuracies[-1], switch.accuracies[-1], ".2%", ".2%")
    row("first loss", gloo.losses[0], switch.losses[0], ".6f", ".1e")
    row("last loss", gloo.losses[-1], switch.losses[-1], ".6f", ".1e")
    furthest = max(range(len(gloo.losses)), key=lambda i: abs(gloo.losses[i] - switch.losses[i]))
    name = f"loss furthest apart (step {furthest + 1})"
    row(name, gloo.losses[furthest], switch.losses[furthest], ".6f", ".1e")
    row("training time, s", gloo.seconds, switch.seconds, ".1f", ".1f")
    return table


def plot(gloo: Metrics, switch: Metrics, path: Path) -> None:
    """Loss per step and accuracy per epoch of both runs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for metrics, label, style in ((gloo, "plain Gloo", "-"), (switch, "through the switch", "--")):
        left.plot(range(1, len(metrics.losses) + 1), metrics.losses, style, label=label)
        right.plot(range(1, len(metrics.accuracies) + 1), metrics.accuracies, style, label=label)
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right.set(xlabel="epoch", ylabel="test accuracy")
    left.legend()
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def problems(gloo: Metrics, switch: Metrics, result: launcher.RunResult) -> list[str]:
    """Why the demo failed; empty when it did not."""
    found = list(reports.disagreements(result.jobs))
    if result.trouble:
        found.append(result.trouble)
    total = reports.totals(result.jobs)
    if total.calls < len(switch.losses):
        found.append(f"{total.calls} all-reduces went through the switch for {len(switch.losses)} steps")
    if len(gloo.losses) != len(switch.losses):
        found.append(f"{len(gloo.losses)} steps under Gloo, {len(switch.losses)} through the switch")
    apart = abs(gloo.accuracies[-1] - switch.accuracies[-1])
    if apart > ACCURACY_TOLERANCE:
        found.append(f"the accuracies are {apart:.2%} apart, more than {ACCURACY_TOLERANCE:.0%}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="netreduce demo", description="Compare Gloo and the switch.")
    parser.add_argument("--workers", type=int, default=4, help="worker processes, 1 to 64 (default: 4)")
    parser.add_argument(
        "--epochs", type=int, default=12, help="passes over the training images (default: 12)"
    )
    parser.add_argument(
        "--transport", choices=["shm", "udp"], default="shm", help="as for netreduce run (default: shm)"
    )
    parser.add_argument(
        "--plot", default="results/demo.png", metavar="FILE",
        help="where the picture of both runs goes (default: results/demo.png)",
    )  # fmt: skip
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="netreduce-demo-") as folder:
        return _compare(options, Path(folder), console)


def _compare(options: argparse.Namespace, folder: Path, console: Console) -> int:
    gloo_file, switch_file = folder / "gloo.json", folder / "switch.json"
    arguments = ["--epochs", str(options.epochs), "--metrics"]
    console.rule(f"1/2  plain Gloo, {options.workers} workers")
    code = train_with_gloo(options.workers, [*arguments, str(gloo_file)], folder)
    if code:
        console.print(f"the run under plain Gloo failed with exit code {code}", style="bold red")
        return code
    console.rule(f"2/2  through the switch, {options.workers} workers")
    console.print("starting the switch, which is compiled the first time", style="dim")
    try:
        result = launcher.run(
            launcher.RunOptions(
                script=str(SCRIPT),
                arguments=[*arguments, str(switch_file)],
                workers=options.workers,
                transport=options.transport,
            )
        )
    except (launcher.UsageError, ServiceError, OSError) as error:
        console.print(str(error), style="bold red", markup=False)
        return 1
    if result.exit_code:
        console.print(
            f"the run through the switch failed with exit code {result.exit_code}", style="bold red"
        )
        return result.exit_code
    gloo, switch = Metrics.read(gloo_file), Metrics.read(switch_file)
    console.rule("summary")
    console.print(comparison_table(gloo, switch))
    reports.print_summary(result.jobs, console)
    plot(gloo, switch, Path(options.plot))
    console.print(f"loss and accuracy of both runs: {options.plot}")
    found = problems(gloo, switch, result)
    for problem in found:
        console.print(f"FAILED: {problem}", style="bold red", markup=False)
    if not found:
        console.print("The switch's counters match what the workers sent.", style="bold green")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
