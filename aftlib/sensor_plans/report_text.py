"""The plan in plain words, line by line, for the terminal."""

from __future__ import annotations

from aftlib.sensor_plans.backtest import GUARD

LISTED = 12


def words(plan: dict) -> list[str]:
    """What the plan says, for somebody who has never heard of the documents."""
    parts = (others, losses, machines, recovery, kept, beside, warnings)
    return [line for part in parts for line in ["", *part(plan)]]


def others(plan: dict) -> list[str]:
    """What each sensor tells about the others."""
    lines = ["What the other machines' sensors tell of each (share of its variance, best witness):"]
    for sensor in plan["sensors"][:LISTED]:
        witness = f"{sensor['closest']} ({sensor['correlation']:+.2f})" if sensor["closest"] else ""
        lines.append(f"  {_name(sensor['name'])} {max(sensor['explained'], 0):4.0%}   {witness}")
    return lines + _rest(plan["sensors"])


def losses(plan: dict) -> list[str]:
    """Which sensors may be lost, and for how long."""
    horizons = plan["question"]["horizons"]
    lines = [
        "How often each could have been lost and estimated within ε, by how many windows the "
        f"outage lasts (1 … {horizons}):"
    ]
    for sensor in plan["sensors"][:LISTED]:
        shares = " ".join(f"{share:4.0%}" for share in sensor["declared"])
        lines.append(f"  {_name(sensor['name'])} {shares}   ε = {sensor['epsilon']:.4g}")
    now = sum(sensor["now"][0] for sensor in plan["sensors"])
    return [
        *lines,
        *_rest(plan["sensors"]),
        f"  after the last window of the file: {now} of {len(plan['sensors'])} sensors",
    ]


def machines(plan: dict) -> list[str]:
    """Who computes which sensor."""
    assignment = plan["assignment"]
    if len(assignment) == len(plan["sensors"]):
        return [f"Machines: {len(assignment)}, one sensor each (--workers says how many)."]
    lines = [f"Machines: {len(assignment)}, sensors dealt so that each has witnesses elsewhere:"]
    for number, names in enumerate(assignment[:LISTED]):
        lines.append(f"  {number}: {', '.join(names[:LISTED])}")
    return lines + _rest(assignment)


def recovery(plan: dict) -> list[str]:
    """Checkpoints, and what is read again."""
    asked, n = plan["question"], len(plan["sensors"])
    lines = [
        f"Recovery within {asked['t_sla_ms']:g} ms, taken to need {asked['fixed_ms']:g} ms and "
        f"{asked['per_tuple_ms']:g} ms a sample read again (--fixed-ms and --per-tuple-ms; the "
        "default is a published measurement, not your machine's):"
    ]
    times = ", ".join(map(str, plan["checkpoints"]))
    lines.append(
        f"  checkpoints after step {times} of each window"
        if times
        else "  no checkpoint inside a window is needed"
    )
    for part in plan["replay"]:
        what = f"{len(part['sensors'])} of {n} sensors" if part["sensors"] else "nothing"
        named = f" ({', '.join(part['sensors'][:6])})" if 0 < len(part["sensors"]) <= 6 else ""
        lines.append(
            f"  failing between step {part['from']} and {part['until']}: read {what} again{named}"
            f", {part['ms']:.1f} ms"
        )
    within = plan["backtest"]["replay_within"]
    if within is not None:
        lines.append(
            f"  back-tested: the others' windows within ε {within:.1%}, worst sensor "
            f"{plan['backtest']['replay_worst_sensor']:.1%} (not guarded: a Gaussian model's word)"
        )
    return lines


def kept(plan: dict) -> list[str]:
    """The back-test."""
    test, delta = plan["backtest"], plan["question"]["delta"]
    scored, of = test["windows"], plan["data"]["windows"]
    part = "second half" if scored >= of // 2 else "last part"
    lines = [f"Back-test on the {part}, {scored:,} windows, each as if it had been lost:"]
    lines.append(f"  declared recoverable beforehand  {test['declared_recoverable']:.1%}")
    if test["within_epsilon"] is None:
        return [*lines, "  no promise was made, so none was broken"]
    low, high = test["interval"]
    lines.append(
        f"  of these within ε               {test['within_epsilon']:.2%}  "
        f"[{low:.2%}, {high:.2%}]; promised: {1 - delta:.0%}"
    )
    if test["worst_sensor"] is not None:
        lines.append(
            f"  worst sensor                    {test['worst_sensor']:.2%}  "
            f"({test['worst_sensor_name']})"
        )
    if test["worst_stretch"] is not None:
        at = plan["stretches"][test["worst_stretch"]["stretch"]]["start"]
        lines.append(
            f"  worst stretch of time           {test['worst_stretch']['within']:.2%}  (from {at})"
        )
    return [
        *lines,
        f"  for any data: of N = {test['N']:,} promises one window ahead at most "
        f"{delta:g}·N + {test['slack_errors']:.0f} wrong (slack/N = {test['slack']:.4f})",
    ]


def beside(plan: dict) -> list[str]:
    """The guard beside other methods."""
    lines = ["Beside it, on the same windows (share promised, share of those within ε):"]
    for line in plan["compared"]:
        within = "–" if line["within"] is None else f"{line['within']:.1%}"
        mark = "" if line["method"] != GUARD else "   ← this plan"
        lines.append(f"  {line['method']:<33} {line['declared']:6.1%}  {within:>6}{mark}")
    return lines


def warnings(plan: dict) -> list[str]:
    """What to know before trusting the plan."""
    return [f"! {caution}" for caution in plan["cautions"]] or ["No warnings."]


def _name(name: str) -> str:
    return f"{name[:24]:<24}"


def _rest(items: list) -> list[str]:
    return [f"  … and {len(items) - LISTED} more"] if len(items) > LISTED else []
