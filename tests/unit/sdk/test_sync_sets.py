"""`kiln.SyncSet`: the object that a declaration makes, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln


def price(shard: dict[str, Any], market: dict[str, Any], scale: int = 1) -> int:
    rates = {row["ccy"]: int(row["rate"]) for row in kiln.Snapshot(market).records()}
    return scale * sum(
        int(row["amount"]) * rates[row["ccy"]] for row in kiln.Shard(shard).records()
    )


def add(parts: list[int]) -> dict[str, int]:
    return {"sum": sum(parts), "count": len(parts)}


def tell(total: dict[str, int], why: str = "") -> str:
    return f"sent {total['sum']}{why}"


def keep(total: dict[str, int], why: str = "") -> str:
    return f"kept {total['sum']}{why}"


def halve(before: float | None) -> float:
    return 1.0 if before is None else before / 2


def fails() -> None:
    raise OSError("disk")


def set_of(name: str = "risk", **given: Any) -> kiln.SyncSet:
    ss = kiln.SyncSet(name, **given)
    ss.group("worker", replicas=2)
    return ss


def flow(ss: kiln.SyncSet) -> dict[str, Any]:
    found: dict[str, Any] = ss.manifest()["spec"]["flow"]
    return found


MARKET = {"rates.csv": "ccy,rate\nCHF,1\nUSD,2\n"}
TRADES = {f"{n}.csv": f"ccy,amount\nCHF,{n}\nUSD,{10 * n}\n" for n in range(1, 4)}


def test_a_declaration_is_the_object_of_a_file() -> None:
    with kiln.SyncSet("eod-risk", pond="lake", keep=5, deadline=60, order="lead") as ss:
        market = ss.data("market", source="lake", path="market", digest="sha256:" + "0" * 64)
        trades = ss.data("trades", source="lake", glob="*.csv", key="ccy", shards="worker")
        ss.group("worker", replicas=4, slots=2, least=3, most=8, near=[trades])
        priced = ss.each(trades, price, market=market, scale=ss.param("scale", 3))
        priced.options(retries=2, retry_delay=5, timeout=9, max_in_flight=64, max_failed="1%")
        total = ss.join(priced, add)
        ss.when(total.value.sum > 0, tell, otherwise=keep, total=total).options(name="report")
        ss.on_failure(tell, causes=["WorkerLost"], total={"sum": 0}, why=ss.error.reason)
        ss.finally_(["/bin/rm", "x"])
    assert ss.manifest() == {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": "eod-risk"},
        "spec": {
            "keep": {"generations": 5},
            "deadlineSeconds": 60,
            "resources": {
                "groups": [
                    {
                        "name": "worker",
                        "replicas": 4,
                        "slotsPerWorker": 2,
                        "min": 3,
                        "elastic": {"max": 8},
                        "near": ["trades"],
                    }
                ]
            },
            "data": {
                "snapshots": [
                    {
                        "name": "market",
                        "from": {"source": "lake", "path": "market"},
                        "digest": "sha256:" + "0" * 64,
                    },
                    {
                        "name": "trades",
                        "from": {"source": "lake", "glob": "*.csv"},
                        "shard": {"by": "hash", "key": "ccy", "group": "worker"},
                    },
                ],
                "pond": {"name": "lake", "order": "lead"},
            },
            "flow": {
                "params": {"scale": 3},
                "do": [
                    {
                        "price": {
                            "each": "shard",
                            "of": "data.trades",
                            "call": f"{__name__}:price",
                            "with": {
                                "shard": "${ shard }",
                                "market": "${ data.market }",
                                "scale": "${ params.scale }",
                            },
                            "parallel": 64,
                            "attemptSeconds": 9,
                            "allow": {"failed": "1%"},
                            "retry": {"maxAttempts": 3, "delaySeconds": 5},
                        }
                    },
                    {
                        "add": {
                            "join": "price",
                            "call": f"{__name__}:add",
                            "with": {"parts": "${ price.results }"},
                        }
                    },
                    {
                        "report": {
                            "if": "${ add.value.sum > 0 }",
                            "call": f"{__name__}:tell",
                            "with": {"total": "${ add.value }"},
                            "else": {
                                "call": f"{__name__}:keep",
                                "with": {"total": "${ add.value }"},
                            },
                        }
                    },
                ],
                "catch": [
                    {
                        "causes": ["WorkerLost"],
                        "do": [
                            {
                                "tell": {
                                    "call": f"{__name__}:tell",
                                    "with": {"total": {"sum": 0}, "why": "${ error.reason }"},
                                }
                            }
                        ],
                    }
                ],
                "finally": [{"rm": {"command": ["/bin/rm", "x"]}}],
            },
        },
    }


def test_other_objects_belong_to_the_set() -> None:
    ss = set_of(suspend=True)
    ss.call(fails)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    ss.owns(settings)
    spec = ss.manifest()["spec"]
    assert (spec["resources"]["objects"], spec["suspend"]) == ([settings], True)
    ss.owns({"kind": "ConfigMap"})
    with pytest.raises(kiln.BadOption, match=r"resources\.objects\[1\] must have apiVersion"):
        ss.manifest()


def test_blocks_contain_steps_declared_within() -> None:
    ss = set_of()
    with ss.fork("both", wait=1) as both:
        ss.call(keep, total={"sum": 1})
        with ss.sequence("left"):
            ss.call(tell, total={"sum": 2}).options(name="a")
            ss.call("pkg.mod:fn", x=1)
    with ss.repeat("solve", most=9) as solve:
        half = ss.call(halve, before=solve.value)
        solve.until((half.value < 0.2) | (solve.iteration > 7))
    ss.returns(both.value.keep)
    found = flow(ss)
    assert list(found["do"][0]["both"]["fork"]) == ["keep", "left"]
    assert found["do"][0]["both"]["wait"] == 1
    assert [list(one) for one in found["do"][0]["both"]["fork"]["left"]["do"]] == [["a"], ["fn"]]
    assert found["do"][1]["solve"]["until"] == "${ (halve.value < 0.2) || (solve.iteration > 7) }"
    assert found["result"] == "${ both.value.keep }"


def test_the_flow_runs_in_this_process_on_the_same_data() -> None:
    with set_of() as ss:
        market = ss.data("market", inline=MARKET)
        trades = ss.data("trades", inline=TRADES, shards=5, by="range")
        total = ss.join(ss.each(trades, price, market=market), add)
        with ss.repeat("solve", most=9) as solve:
            solve.until(ss.call(halve, before=solve.value).value < 0.2)
        with ss.fork("both"):
            ss.call(tell, total=total)
            ss.when(solve.value > 1, keep, total=total)
        ss.returns(ss.expression("{'sum': add.value, 'both': both.value, 'last': solve.value}"))
    view = kiln.testing.run_set(ss)
    assert view.value == {
        "sum": {"sum": 126, "count": 5},
        "both": {"tell": "sent 126", "keep": None},
        "last": 0.125,
    }
    assert view.steps["solve.halve"].succeeded == 4
    assert kiln.testing.run_set(ss.manifest()).value == view.value


def test_files_of_this_machine_take_the_place_of_a_source(tmp_path: Any) -> None:
    (tmp_path / "rates.csv").write_text(MARKET["rates.csv"])
    trades = tmp_path / "trades"
    trades.mkdir()
    for name, text in TRADES.items():
        (trades / name).write_text(text)
    ss = set_of()
    market = ss.data("market", source="lake")
    days = ss.data("trades", source="lake", shards=2)
    ss.join(ss.each(days, price, market=market), add)
    view = kiln.testing.run_set(ss, data={"market": tmp_path / "rates.csv", "trades": trades})
    assert view.value == {"sum": 126, "count": 2}
    with pytest.raises(kiln.KilnError, match=r"snapshot trades comes from a pond.*data={'trades'"):
        kiln.testing.run_set(ss, data={"market": tmp_path / "rates.csv"})
    with pytest.raises(kiln.KilnError, match=r"'other' is no snapshot.*market, trades"):
        kiln.testing.run_set(ss, data={"market": tmp_path, "trades": trades, "other": "x"})


def test_failure_steps_can_refer_to_the_error() -> None:
    ss = set_of()
    ss.call(fails)
    ss.on_failure(tell, total={"sum": 1}, why=ss.error.message)
    view = kiln.testing.run_set(ss)
    assert (view.phase, view.message) == ("Failed", "step fails: OSError: disk")
    assert view.steps["catch[0].tell"].succeeded == 1


def test_functions_of_the_program_itself_need_no_module_in_this_process() -> None:
    ss = set_of()
    numbers = ss.each([1, 2, 3], lambda item: item * 2)
    ss.join(numbers, lambda results: 2 * sum(results))
    assert kiln.testing.run_set(ss).value == 24
    with pytest.raises(kiln.BadOption, match="workers cannot import it, so a manifest cannot name"):
        ss.manifest()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda ss: ss.call(price, markt={}), "step price: has no parameter for the input 'markt'"),
        (lambda ss: ss.call(tell), "step tell: missing a required argument: 'total'"),
        (lambda ss: ss.call(3), "step .*: must be a function"),
        (lambda ss: ss.call([]), "step step: a program is a list of texts"),
        (lambda ss: ss.each([1], fails), "step fails: has no parameter that is left for the item"),
        (lambda ss: ss.join(ss.call(fails), add), "step add: joins <CallStep fails>, which is no"),
        (lambda ss: ss.when(True, fails), "step fails: the condition is True, known now"),
        (lambda ss: ss.call(fails).options(retrys=1), "step fails: no option is called 'retrys'"),
        (lambda ss: ss.call(fails).options(name="Fails"), "step 'Fails': must be named by"),
        (lambda ss: ss.expression("1 +"), r"expression '1 \+': is no expression"),
        (lambda ss: ss.group("more", size=3), "group more: no option is called 'size'"),
        (lambda ss: ss.call("noname").manifest(), "."),
    ],
)
def test_invalid_declaration_is_refused_where_it_is_made(declare: Any, message: str) -> None:
    ss = set_of()
    with pytest.raises((kiln.BadOption, AttributeError), match=message):
        declare(ss)


def test_a_text_is_never_an_expression_by_chance() -> None:
    ss = set_of()
    ss.call(tell, total="${ add.value }")
    with pytest.raises(kiln.BadOption, match=r"step tell: input total: .*ss.expression"):
        ss.manifest()


def test_invalid_set_is_refused_at_the_end_of_its_block() -> None:
    alone = kiln.SyncSet("risk")
    alone.call(fails)
    with pytest.raises(kiln.BadOption, match=r"has no workers: say ss\.group"):
        alone.manifest()
    whole = set_of()
    whole.each(whole.data("all", source="lake"), price, market=1)
    message = r"spec\.flow\.do\[0\]\.price\.of names data\.all, which has no shards"
    with pytest.raises(kiln.BadOption, match=message), whole:
        pass
    early = set_of()
    with early.repeat(most=2) as loop:
        later = early.call(fails)
        loop.until(later.value == 1)
    early.call(tell, total=later)
    with pytest.raises(kiln.BadOption, match="step that is not over by then"):
        early.manifest()
    endless = set_of()
    with endless.repeat("loop", most=2):
        endless.call(fails)
    with pytest.raises(kiln.BadOption, match=r"step loop: has no end: say \.until\(condition\)"):
        endless.manifest()
    with pytest.raises(kiln.BadOption, match="no option is called 'ponds'"):
        kiln.SyncSet("risk", ponds="x")  # type: ignore[call-arg]


def test_submitting_needs_a_server() -> None:
    ss = set_of()
    ss.call(fails)
    with pytest.raises(kiln.NoSession):
        ss.submit()


def write_price(number: int) -> int:
    (kiln.outputs() / f"{number}.csv").write_text(f"{number}\n")
    (kiln.outputs() / "log.txt").write_text("x")
    return number


def test_outputs_of_a_step_are_kept_by_its_path_and_found_after_a_run(tmp_path: Path) -> None:
    ss = set_of()
    with ss.fork() as checks:
        priced = ss.each([1, 2], write_price)
        ss.call(keep, total={"sum": 1})
    ss.output("prices", priced, glob="*.csv")
    priced.options(name="var")
    ss.returns(checks)
    assert ss.manifest()["spec"]["data"]["outputs"] == [
        {"name": "prices", "step": "fork.var", "glob": "*.csv"}
    ]
    view = kiln.testing.run_set(ss, outputs=tmp_path)
    assert view.phase == "Succeeded"
    assert sorted(p.name for p in (tmp_path / "prices").iterdir()) == ["1.csv", "2.csv"]


def test_outputs_outside_of_a_set_are_refused() -> None:
    with pytest.raises(kiln.NotInTask):
        kiln.outputs()


def test_output_of_another_set_is_data() -> None:
    ss = set_of()
    ss.call(keep, total=ss.data("prices", output=("eod-risk", "prices")))
    [snapshot] = ss.manifest()["spec"]["data"]["snapshots"]
    assert snapshot == {"name": "prices", "from": {"output": {"set": "eod-risk", "name": "prices"}}}
