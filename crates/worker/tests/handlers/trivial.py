"""The smallest program for a pool: everything is fine."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"id": message["id"], "ok": True}), flush=True)
