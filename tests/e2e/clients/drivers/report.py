"""What every driver tells the test."""

import json


def report(tools, found, answer):
    print(json.dumps({"tools": tools, "found": found, "answer": answer}))
