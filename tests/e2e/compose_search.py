"""`compose_search.py URL < LOG`: take the first token from a search service's log and search with it."""

from __future__ import annotations

import re
import sys

import httpx2

SECRET = re.compile(r"\bptm_[\w-]{43}")
TOOLS = [
    {"toolKey": "sky:get_forecast", "toolName": "get_forecast", "serverName": "sky", "description": "The weather."},
    {"toolKey": "post:send_mail", "toolName": "send_mail", "serverName": "post", "description": "Sends a letter."},
]


def main() -> None:
    printed = set(SECRET.findall(sys.stdin.read()))
    if len(printed) != 1:
        raise SystemExit(f"the log holds {len(printed)} tokens instead of one")
    headers = {"Authorization": f"Bearer {printed.pop()}", "X-Pointsman-Project": "any"}
    body = {"query": ["what will the weather be"], "tools": TOOLS}
    # As a gateway in the next container calls it: by the name that the first configuration allows.
    for host in ({}, {"Host": "search:3283"}):
        answer = httpx2.post(f"{sys.argv[1]}/catalog/search", json=body, headers=headers | host, timeout=60)
        if answer.status_code != 200 or answer.json()["results"][0]["toolKey"] != "sky:get_forecast":
            raise SystemExit(f"the search failed: {answer.status_code} {answer.text}")
        print(f"found {answer.json()['results'][0]['toolKey']} by {answer.json()['provider']}")


if __name__ == "__main__":
    main()
