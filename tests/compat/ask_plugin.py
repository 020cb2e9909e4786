"""Runs in the environment of a published plugin: ask its routes about one graph file, print the answers as JSON.

    python ask_plugin.py FOLDER TAG json|db NODE VALUES...

``VALUES``: what the filter by precision is asked for, as JSON.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import sys
import types

from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client


def main(folder: str, tag: str, kind: str, node: str, values: str) -> None:
    (entry,) = (
        entry for entry in importlib.metadata.entry_points(group="tensorboard_plugins") if entry.name == "graph_ascend"
    )
    context = TBContext(logdir=folder, flags=types.SimpleNamespace(logdir=folder), multiplexer=None, data_provider=None)
    apps = entry.load()(context).get_plugin_apps()
    run = os.path.basename(os.path.abspath(folder))
    meta = {"run": run, "tag": tag, "type": kind, "microStep": -1, "lang": "en", "rank": 0, "step": 0}

    def post(route: str, **body: object) -> object:
        return json.loads(Client(apps[f"/{route}"]).post("/", json={"metaData": meta, **body}).get_data(as_text=True))

    answers = {}
    with contextlib.redirect_stdout(io.StringIO()):
        answers["load_meta_dir"] = json.loads(Client(apps["/load_meta_dir"]).get("/").get_data(as_text=True))
        query = {"run": run, "tag": tag, "type": kind, "lang": "en"}
        answers["loadGraphData"] = Client(apps["/loadGraphData"]).get("/", query_string=query).get_data(as_text=True)
        answers["loadGraphConfigInfo"] = post("loadGraphConfigInfo")
        answers["loadGraphAllNodeList"] = post("loadGraphAllNodeList")
        answers["root"] = post("changeNodeExpandState", nodeInfo={"nodeName": "root", "nodeType": "NPU"})
        around = node.split(".mlp")[0] + ".Block.forward.0"
        answers["expanded"] = post("changeNodeExpandState", nodeInfo={"nodeName": around, "nodeType": "NPU"})
        answers["getNodeInfo"] = post("getNodeInfo", nodeInfo={"nodeName": node, "nodeType": "NPU"})
        filter_route = "filterNodes" if "/filterNodes" in apps else "screen"
        answers["filter"] = {
            name: post(filter_route, type="precision", values=wanted) for name, wanted in json.loads(values).items()
        }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
