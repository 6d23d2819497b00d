"""`pointsman tools test`: kept requests and those of the audit, ranked again by a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

from pointsman.core.extras import semantic_is_installed
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import Shop, workshop
from tests.servers.search_service import TOKEN, answer, http, search_service, sends

KEPT = """
- {query: paint an object, expected: [shop:paint, attic:paint]}
- {query: [which colour is it, never answer], expected: [shop:hang, attic:hang], worst_rank: 3, context: the workshop}
- {query: paint an object, expected: attic:paint, project: attic}
"""


async def test_kept_requests_that_find_their_tools_pass_and_others_fail(shop: Shop, tmp_path: Path) -> None:
    missing = await run(tmp_path, "tools", "test")
    assert missing.code == 2
    assert "pointsman.queries.yaml" in missing.stderr
    kept = tmp_path / "pointsman.queries.yaml"
    kept.write_text(KEPT)
    passed = await run(tmp_path, "tools", "test", "--json", "--provider", "bm25", "--provider", "bm25+static")
    assert passed.code == 0, passed.stderr
    for case in passed.json["cases"]:
        assert case["ranks"].keys() == {"now", "bm25", "bm25+static"}
        assert case["ranks"]["now"] == case["ranks"]["bm25+static"]
        assert case["missed"] is False
    assert passed.json["summary"]["now"]["firstThree"] == 1.0

    kept.write_text(f"{KEPT}- {{query: paint an object, expected: [shop:erase, shop:vanish], worst_rank: 100}}\n")
    failed = await run(tmp_path, "tools", "test")
    assert failed.code == 1
    assert "missed: wanted 100 or better" in failed.stdout
    assert "1 request of 4 missed" in failed.stderr
    assert "No server has the tool `shop:vanish`, which is expected." in failed.stderr
    assert failed.stderr.count("No server has") == 1
    assert "Did you mean" not in failed.stderr
    piped = await run(tmp_path, "tools", "test", "-", "--json", stdin=KEPT)
    assert (piped.code, len(piped.json["cases"])) == (0, 3)
    broken = await run(tmp_path, "tools", "test", "-", stdin="- {query: x}")
    assert (broken.code, "<stdin>: entry 1, line 1: `expected` is missing" in broken.stderr) == (2, True)
    assert await shop.rows() == []  # a trial is no discovery

    assert (await run(tmp_path, "server", "stop", "attic")).code == 0
    stopped = await run(tmp_path, "tools", "test")
    assert "missed: wanted 1 or better (server `attic` is stopped)" in stopped.stdout


async def test_a_file_with_mistakes_is_refused_with_the_entry_and_an_example(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for text, said in (
        ("query: x", "must be a list"),
        ("- {query: x, expected: a:b, worst_rnak: 1}", "Did you mean `worst_rank`?"),
        ("\n- {query: x, expected: a:b, project: nope}", "mine.yaml: entry 1, line 2: there is no project `nope`"),
    ):
        file.write_text(text)
        refused = await run(tmp_path, "tools", "test", str(file))
        assert (refused.code, said in refused.stderr) == (2, True), refused.stderr[:500]
    file.write_text("- {query: x}\n- {expected: a:b}\n- {query: paint, expected: shop}\n")
    several = await run(tmp_path, "tools", "test", str(file))
    assert (several.code, several.stderr.count("mine.yaml: entry"), several.stderr.count("- {query:")) == (2, 3, 1)
    file.write_text("- {query: paint an object, expected: [shop:piant, nowhere:paint]}")
    misspelt = await run(tmp_path, "tools", "test", str(file))
    assert "No server has the tool `shop:piant`, which is expected. Did you mean `shop:paint`?\n" in misspelt.stderr
    assert "No server has the tool `nowhere:paint`, which is expected.\n" in misspelt.stderr
    file.write_text("[]")
    empty = await run(tmp_path, "tools", "test", str(file))
    assert (empty.code, empty.stdout, "has no requests yet" in empty.stderr) == (0, "", True)
    file.write_text("")
    cut = await run(tmp_path, "tools", "test", str(file))
    assert (cut.code, "mine.yaml is empty. Write `[]`" in cut.stderr) == (2, True)
    file.write_text("- {query: x, expected: a:b}")
    for options, said in (
        ((str(file), "--audit"), "either FILE or --audit"),
        ((str(file), "--since", "7d"), "--since needs --audit"),
        ((str(file), "-n", "5"), "-n needs --audit"),
        ((str(file), "--before", str(file)), "is not what"),
        ((str(file), "--before", str(tmp_path / "nofile.json")), "There is no"),
    ):
        refused = await run(tmp_path, "tools", "test", *options)
        assert (refused.code, said in refused.stderr) == (2, True), refused.stderr
    unconfigured = await run(tmp_path, "tools", "test", str(file), "--provider", "cloud")
    assert (unconfigured.code, "`cloud_search` is missing" in unconfigured.stderr) == (2, True)


async def test_the_audits_discoveries_are_ranked_again_and_compared_with_earlier(shop: Shop, tmp_path: Path) -> None:
    empty = await run(tmp_path, "tools", "test", "--audit")
    assert (empty.code, "no discovery" in empty.stderr) == (2, True)
    await shop.call("tool_discovery", {"query": ["paint an object"]})
    await shop.call("tool_execute", {"toolKey": "shop:paint", "arguments": {"object": "door"}})
    ranked = await run(tmp_path, "tools", "test", "--audit", "--json", "--provider", "bm25")
    assert ranked.code == 0, ranked.stderr
    [case] = ranked.json["cases"]
    assert (case["queries"], case["expected"], case["token"]) == (["paint an object"], ["shop:paint"], "test")
    assert case["ranks"] == {"now": 1, "bm25": 1}
    assert len(await shop.rows()) == 2

    earlier = ranked.json
    earlier["cases"][0]["ranks"]["now"] = 7
    (tmp_path / "before.json").write_text(json.dumps(earlier))
    compared = await run(tmp_path, "tools", "test", "--audit", "--before", str(tmp_path / "before.json"))
    assert compared.code == 0
    assert "BEFORE  NOW" in compared.stdout
    assert "now (bm25+static)" in compared.stdout
    (changed,) = [line.split() for line in compared.stdout.splitlines() if line.startswith("paint an object")]
    assert changed[-2:] == ["7", "1"]

    assert "paint an object" not in (await run(tmp_path, "tools", "test", "--audit")).stdout  # it is first as ever
    assert (await run(tmp_path, "server", "disable", "shop")).code == 0
    lost = await run(tmp_path, "tools", "test", "--audit")
    (missed,) = [line for line in lost.stdout.splitlines() if line.startswith("paint an object")]
    assert missed.endswith(" not found (server `shop` is disabled)")
    assert lost.code == 0  # nobody has said how far behind the tool may come


async def test_other_searches_are_compared_and_one_that_does_not_answer_is_told(tmp_path: Path) -> None:
    (tmp_path / "pointsman.queries.yaml").write_text("- {query: paint an object, expected: shop:paint, worst_rank: 9}")
    ranked = [{"toolKey": "shop:wait", "relevance": 0.9}, {"toolKey": "shop:paint", "relevance": 0.8}]
    async with search_service(sends(answer(*ranked))) as service:
        cloud = {"url": service.url, "token": TOKEN, "timeout_s": 20}
        config = {"servers": {"shop": workshop(tmp_path / "trace")}, "cloud_search": cloud}
        async with gateway_process(tmp_path, config):
            first = await run(tmp_path, "tools", "test", "--json", "--provider", "cloud")
            [case] = first.json["cases"]
            assert case["ranks"] == {"now": 1, "cloud": 2}
            service.behave = sends(http(b"", "500 Internal Server Error"))
            second = await run(tmp_path, "tools", "test", "--provider", "cloud")
            assert "`cloud` did not answer 1 request" in second.stderr
            encoder = await run(tmp_path, "tools", "test", "--provider", "bm25+static+minilm")
            installed = semantic_is_installed()
            assert (encoder.code, "'pointsman[semantic]' (in a checkout: make semantic)" in encoder.stderr) == (
                0 if installed else 2,
                not installed,
            )
