"""What is learnt from a start, what is shown of the next one, and what is left of one that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkops.commands.guard import CONTAINER
from sparkops.config.recipe import Startup
from sparkops.errors import CommandFailed, SparkopsError, StartFailed
from sparkops.facts.advice import TAKE_LESS
from sparkops.facts.docker import log_lines
from sparkops.facts.vllm_log import Stage
from sparkops.fleet import deploy as deploying
from sparkops.fleet import observe
from sparkops.fleet.keep import LOG_CHARACTERS, Keep
from sparkops.fleet.progress import Event
from sparkops.fleet.watch import Shown
from sparkops.guard.store import FAILURES, Store
from sparkops.plan import deploy as planning
from sparkops.plan.option import Wish
from sparkops.plan.pace import Forecast
from sparkops.plan.startup import Line, Sample, Watch, advance
from sparkops.release import Release
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import DIES, GARBAGE
from tests.fleet_unit.verbs import deploy, id_of, problem
from tests.fleet_unit.world import World

CAPTURED = Path(__file__).parents[1] / "facts" / "captured"
LOADING = "Starting to load model /models/q..."
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
FIGURE = {"cold_start_s": 800.0, "source": "a test"}


def told(world: World) -> list[str]:
    return [event.text for event in world.events if event.lasting]


def start(world: World, release: Release, keep: Keep | None = None) -> None:
    """`sparkops deploy` without a gateway, on all machines."""
    with world.order() as order:
        observed = observe.before_deploy(order.connected, release)
        made = planning.deploy(release, observed)
        deploying.deploy(order.connected, made, keep or order.keep, world.told)


def shelf(world: World, node: str = "n1") -> list[Path]:
    return sorted((world.stores[node].directory / "failures" / "chat").iterdir())


def test_a_start_is_remembered_on_its_node_and_shown_with_the_next_one(make: Make) -> None:
    world = make(2)
    for version, loads in (("1", 1), ("2", 1), ("2", 2)):
        release = world.release(version, expected=FIGURE)
        world.machines["n2"].loads[release.id] = loads
        world.machines["n2"].logs[release.id] = LOADING
        deploy(world, version, Wish(nodes=("n2",), allow_downtime=True), expected=FIGURE)

    [first, second] = world.stores["n2"].starts("chat")
    assert (first["release"], list(first["stages"])) == (  # type: ignore[call-overload]
        world.release("1", expected=FIGURE).id,
        ["starting", "loading weights", "serving"],
    )
    assert second["release"] == world.release("2", expected=FIGURE).id
    assert list(world.stores["n1"].starts("chat")) == []
    shown = [text for text in told(world) if "left" in text]
    assert shown == [
        "loading weights, about 13 min 20 s left, by the recipe's figure",
        "loading weights, about 0 s left, learnt from 1 start of other settings",
    ]


def test_what_served_at_the_first_look_was_no_start(make: Make) -> None:
    world = make(1)

    deploy(world, "1")

    assert list(world.stores["n1"].starts("chat")) == []


def test_in_place_the_gap_is_announced_before_the_service_goes_down(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    for took_s in (100.0, 400.0, 200.0):
        stages = {"starting": 0.0, "serving": took_s}
        world.stores["n1"].learn("chat", {"release": id_of(world, "2"), "kind": "", "stages": stages})
    world.stores["n1"].learn("chat", {"release": "of a later version of sparkops"})

    deploy(world, "2")

    down = told(world).index("chat goes down while green starts: about 3 min 20 s, learnt from 3 starts")
    assert down < told(world).index("chat: nobody has the traffic; requests get 503 with Retry-After")


def test_a_deploy_without_gateway_learns_too_where_there_is_a_guard(make: Make) -> None:
    world = make(2)
    release = world.release("1")
    del world.machines["n2"].containers[CONTAINER]
    for machine in world.machines.values():
        machine.loads[release.id] = 1

    start(world, release)

    assert [len(list(store.starts("chat"))) for store in world.stores.values()] == [1, 0]


class Forgetful(Store):
    """A guard of another version: it understands nothing of starts."""

    def starts(self, service: str) -> None:  # type: ignore[override]
        raise ValueError(f"no {service}")

    learn = keep = starts  # type: ignore[assignment]


def test_a_guard_that_cannot_remember_stops_nobody(make: Make) -> None:
    world = make(1)
    world.stores = {"n1": Forgetful(world.home / "n1")}
    release = world.release("1")
    world.machines["n1"].loads[release.id] = 1

    start(world, release)

    assert [text[:60] for text in told(world) if "learnt" in text] == [
        "nothing is learnt from starts: n1: the guard does not understand"[:60]
    ] * 2


@pytest.mark.parametrize(("mood", "files"), [(DIES, set()), (GARBAGE, {"probe.json"})])
def test_a_failure_is_saved_here_and_on_its_node(make: Make, mood: str, files: set[str]) -> None:
    world = make(1)
    release = world.release("1")
    machine = world.machines["n1"]
    machine.moods[release.id] = mood
    machine.loads[release.id] = 1
    index = "proxy http://user:s3cret@proxy.lan:3128"
    machine.logs[release.id] = f"{LOADING}\n{index}\n{OUT_OF_MEMORY if mood == DIES else ''}"
    here = world.home / "here"

    with pytest.raises(SparkopsError) as caught:
        start(world, release, Keep(lambda _: here, there=True))

    [there] = shelf(world)
    for directory in (here, there):
        assert {each.name for each in directory.iterdir()} == {"log.txt", "inspect.json", "memory.csv", *files}
        assert {oct(each.stat().st_mode & 0o777) for each in directory.iterdir()} == {"0o600"}
        assert directory.stat().st_mode & 0o777 == 0o700
        log = (directory / "log.txt").read_text()
        assert (LOADING in log, "proxy http://***@proxy.lan:3128" in log) == (True, True)
        assert json.loads((directory / "inspect.json").read_text())["Name"] == f"/{release.id}-blue-r0"
        header, first, *_ = (directory / "memory.csv").read_text().splitlines()
        assert header == "time_s,available_gib,container_gib"
        assert first.split(",")[1:] == (["100.00", "0.00"] if mood == DIES else ["40.00", "2.00"])
    notes = caught.value.__notes__
    assert notes[:2] == [f"saved: {here}", f"saved on n1 as well: docker cp sparkops-guard:{there} ."]
    assert notes[2] == f"{release.id}-blue-r0 is stopped, and stays on n1 with its log"


def test_a_crash_is_told_at_once_with_its_last_lines_and_the_cause(make: Make) -> None:
    world = make(1)
    release = world.release("1")
    world.machines["n1"].moods[release.id] = DIES
    world.machines["n1"].logs[release.id] = "\n".join([LOADING, OUT_OF_MEMORY, *map(str, range(20))])

    with pytest.raises(StartFailed) as caught:
        start(world, release)

    reason = f"{release.id}-blue-r0 did not start: {OUT_OF_MEMORY}"
    assert f"failed: {reason}" in told(world)
    head, *lines, cause = str(caught.value).splitlines()
    assert head == f"n1: {reason}"
    assert lines == [f"    {number}" for number in range(8, 20)]
    assert cause == "  likely cause: the engine ran out of GPU memory"
    assert caught.value.next_step.splitlines() == [TAKE_LESS, "The whole log: sparkops logs chat --node n1"]


def test_a_real_failure_is_told_by_its_exception_without_tracebacks(make: Make) -> None:
    world = make(1)
    release = world.release("1")
    log = sorted(log_lines((CAPTURED / "vllm-0.23.0-cuda-free-memory-less-than-desired.log").read_text()))
    world.machines["n1"].moods[release.id] = DIES
    world.machines["n1"].logs[release.id] = "\n".join(text for _, text in log)

    with pytest.raises(StartFailed) as caught:
        start(world, release)

    head, *lines, cause = str(caught.value).splitlines()
    assert head == (
        f"n1: {release.id}-blue-r0 did not start: ValueError: Free memory on device cuda:0 (13.89/79.18 GiB) on "
        "startup is less than desired GPU memory utilization (0.95, 75.22 GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes."
    )
    assert [line.split("] ")[-1] for line in lines[-5:-1]] == [
        "EngineCore failed to start.",
        "    ... traceback of 5 lines",
        "    (EngineCore pid=47) Process EngineCore:",
        "    ... traceback of 61 lines",
    ]
    assert len(lines) == 12
    assert cause == (
        "  likely cause: 13.89 of 79.18 GiB are free on cuda:0; gpu-memory-utilization 0.95 reserves 75.22 GiB"
    )
    assert "set gpu-memory-utilization to 0.17 or less" in caught.value.next_step


def test_while_one_node_goes_on_the_failure_of_another_is_known(make: Make) -> None:
    world = make(2)
    release = world.release("1")
    world.machines["n1"].moods[release.id] = DIES
    world.machines["n2"].loads[release.id] = 3

    with pytest.raises(StartFailed):
        start(world, release)

    texts = [(event.node, event.text.split(" ")[0]) for event in world.events if event.lasting]
    assert ("n1", "failed:") in texts
    assert ("n2", "let") in texts


def test_a_hung_engine_that_still_talks_has_the_last_word(make: Make) -> None:
    """A fatal line comes while the process lives; what it says next tells the cause."""
    world = make(1)
    release = world.release("1")
    machine = world.machines["n1"]
    machine.logs[release.id] = "EngineCore failed to start."
    machine.loads[release.id] = 5
    said = f"{machine.logs[release.id]}\n{OUT_OF_MEMORY}"
    world.listeners["starting, 0 s"] = lambda: machine.logs.update({release.id: said})

    error = start_in_vain(world, release)

    assert f"did not start: {OUT_OF_MEMORY}\n" in error
    assert "likely cause: the engine ran out of GPU memory" in error


def start_in_vain(world: World, release: Release) -> str:
    with pytest.raises(StartFailed) as caught:
        start(world, release)
    return str(caught.value)


def test_only_the_newest_failures_of_a_service_stay(make: Make) -> None:
    world = make(1)
    store = world.stores["n1"]

    for number in range(FAILURES + 2):
        store.keep("chat", f"q-{number}", {"log.txt": "x"})
    store.keep("other", "q-0", {"log.txt": "x"})

    assert [each.name.split("Z-")[1] for each in shelf(world)] == [f"q-{number}" for number in range(2, FAILURES + 2)]


def test_a_disk_that_is_full_here_does_not_keep_a_bad_engine_running(make: Make) -> None:
    world = make(1)
    release = world.release("1")
    world.machines["n1"].moods[release.id] = GARBAGE
    (world.home / "file").write_text("")

    with pytest.raises(SparkopsError) as caught:
        start(world, release, Keep(lambda _: world.home / "file", there=True))

    assert world.machines["n1"].up == {}
    assert "and then, while putting it away: [Errno 17]" in caught.value.__notes__[0]


def test_of_a_long_log_the_end_is_saved(make: Make) -> None:
    world = make(1)
    release = world.release("1")
    world.machines["n1"].moods[release.id] = DIES
    world.machines["n1"].logs[release.id] = "\n".join(f"line {number} {'x' * 70}" for number in range(20_000))

    start_in_vain(world, release)

    log = (world.home / "failures" / "n1" / "log.txt").read_text()
    assert (len(log), log.splitlines()[-1].split()[2]) == (LOG_CHARACTERS, "19999")


def test_a_failure_says_nothing_of_an_earlier_one(make: Make) -> None:
    world = make(1)
    for version, mood in (("1", GARBAGE), ("2", DIES)):
        world.machines["n1"].moods[id_of(world, version)] = mood
        problem(world, version)

    assert {each.name for each in (world.home / "failures" / "n1").iterdir()} == {
        "log.txt",
        "inspect.json",
        "memory.csv",
    }


def watched(*samples: Sample, forecast: Forecast | None) -> list[tuple[str, bool]]:
    """What is told of a start, and whether it lasts."""
    events: list[Event] = []
    shown = Shown(events.append, "n1", forecast)
    watch = Watch(Startup(stall_s=9000.0))
    for each in samples:
        before, watch = watch, advance(watch, each)
        shown.look(before, watch, each.at_s)
    return [(event.text, event.lasting) for event in events]


SHARDS = "Loading safetensors checkpoint shards:  43% Completed"
START = (
    Sample(0.0),
    Sample(10.0, (Line(9.6, LOADING),)),
    Sample(230.0, (Line(229.0, SHARDS),)),
    Sample(1201.0),
    Sample(1202.0),
    Sample(1203.0, healthy=True),
)


def test_a_start_is_told_with_what_is_left_of_it_and_one_warning() -> None:
    learnt = Forecast(600.0, "learnt from 3 starts", {Stage.STARTING: 600.0, Stage.WEIGHTS: 590.0})

    assert watched(*START, forecast=learnt) == [
        ("starting, about 10 min left, learnt from 3 starts", True),
        ("loading weights after 10 s, about 9 min 50 s left, learnt from 3 starts", True),
        ("loading weights 43 %, about 6 min 10 s left, learnt from 3 starts", False),
        ("loading weights 43 %, 10 min later than usual, learnt from 3 starts", False),
        ("slow: it takes more than 2 times the usual 10 min, learnt from 3 starts", True),
        ("loading weights 43 %, 10 min later than usual, learnt from 3 starts", False),
        ("serving after 1203 s", True),
    ]


def test_of_a_start_that_nothing_is_known_of_its_age_is_told() -> None:
    assert watched(*START, forecast=None) == [
        ("starting, 0 s", False),
        ("loading weights after 10 s", True),
        ("loading weights 43 %, 230 s", False),
        ("loading weights 43 %, 1201 s", False),
        ("loading weights 43 %, 1202 s", False),
        ("serving after 1203 s", True),
    ]


NO_DRIVER = 'Error response from daemon: could not select device driver "" with capabilities: [[gpu]]'
NO_SPEC = "Error response from daemon: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all"
NO_GPU = [
    (NO_DRIVER, "the node's Docker lacks the NVIDIA Container Toolkit", "nvidia-ctk runtime configure"),
    (NO_SPEC, "the node has no CDI specification", "nvidia-ctk cdi generate"),
]


@pytest.mark.parametrize(("said", "cause", "step"), NO_GPU)
def test_a_gpu_that_docker_cannot_give_is_explained_and_blue_serves(
    make: Make, said: str, cause: str, step: str
) -> None:
    world = make(1)
    deploy(world, "1")
    machine = world.machines["n1"]
    machine.complaint = said
    machine.fails = lambda line: int(line.startswith(f"docker start {id_of(world, '2')}"))

    error = problem(world, "2")

    assert f"  likely cause: {cause}" in str(error)
    assert step in error.next_step
    assert world.serving() == id_of(world, "1")


@pytest.mark.parametrize(("said", "cause", "step"), NO_GPU)
def test_without_a_gateway_it_is_explained_too(make: Make, said: str, cause: str, step: str) -> None:
    world = make(1)
    world.machines["n1"].complaint = said
    world.machines["n1"].fails = lambda line: int(line.startswith("docker start"))

    with pytest.raises(CommandFailed) as caught:
        start(world, world.release("1"))

    assert f"  likely cause: {cause}" in str(caught.value)
    assert step in caught.value.next_step


def test_another_error_of_docker_has_no_cause(make: Make) -> None:
    world = make(1)
    world.machines["n1"].fails = lambda line: int(line.startswith("docker start"))

    with pytest.raises(CommandFailed) as caught:
        start(world, world.release("1"))

    assert "likely cause" not in str(caught.value)
    assert caught.value.next_step == ""
