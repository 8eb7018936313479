"""A rank that prints its secrets in many forms, waits for a file, and fails with the secrets in its message."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import urllib.parse
from pathlib import Path

NAMES = ("PLAIN_TOKEN", "LINE_PAT", "SEALED_DSN", "REMARK", "TYPED_PWD", "GROUP_KEY", "ARGUMENT", "SPLIT")
gate, *arguments = sys.argv[1:]
secrets = [os.environ.get(name, "") for name in NAMES]
secrets += [arguments[0].partition("=")[2], arguments[2]]
for stream in (sys.stdout, sys.stderr):
    for secret in filter(None, secrets):
        print("as it is:", secret, file=stream)
        print("in JSON:", json.dumps({"x": secret}), file=stream)
        print("in Python:", repr([secret]), file=stream)
        print("in a URL:", urllib.parse.quote_plus(secret), file=stream)
        print("in a header:", base64.b64encode(f"ada:{secret}".encode()).decode(), file=stream)
        print(f'@muster {{"event": "step", "step": 1, "text": {json.dumps(secret)}}}', file=stream)
        for letter in secret:  # each in a separate chunk
            stream.write(letter)
            stream.flush()
            time.sleep(0.005)
        print(" letter by letter", file=stream, flush=True)
print("told", flush=True)
while not Path(gate).exists():
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    raise RuntimeError(f"no access with {secrets}")
time.sleep(600)
