"""A Kubernetes API server that knows Chaos Mesh's PodChaos and little else: what the real kubectl needs to run against.

Prints its port. POST /control marks every object as a controller does that injected it. Requests are printed, one a line.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = "chaos-mesh.org/v1alpha1"
GROUP = "/apis/" + VERSION
SCHEMA = "/openapi/v3" + GROUP
objects = {}


def resource(name, kind):
    return {"name": name, "singularName": name, "namespaced": True, "kind": kind, "verbs": ["get", "list", "create", "delete"]}


def discovery(path):
    version = {"groupVersion": VERSION, "version": "v1alpha1"}
    patch = {
        "x-kubernetes-group-version-kind": {"group": "chaos-mesh.org", "version": "v1alpha1", "kind": "PodChaos"},
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        "responses": {},
    }
    return {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [{"name": "chaos-mesh.org", "versions": [version], "preferredVersion": version}],
        },
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource("events", "Event")]},
        GROUP: {"kind": "APIResourceList", "groupVersion": VERSION, "resources": [resource("podchaos", "PodChaos")]},
        "/openapi/v3": {"paths": {GROUP[1:]: {"serverRelativeURL": SCHEMA + "?hash=1"}}},
        SCHEMA: {
            "openapi": "3.0.0",
            "info": {"title": "fake", "version": "1"},
            "paths": {GROUP + "/namespaces/{namespace}/podchaos/{name}": {"patch": patch}},
        },
    }.get(path)


def injected():
    conditions = [{"type": t, "status": "True"} for t in ("Selected", "AllInjected")]
    records = [{"id": "shop/web-1/web", "phase": "Injected", "injectedCount": 1}]
    return {"conditions": conditions, "experiment": {"desiredPhase": "Run", "containerRecords": records}}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body, code=200):
        print(self.command, self.path, flush=True)
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer_or_missing(self, body):
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self.answer(body or missing, 200 if body else 404)

    def do_GET(self):
        path = self.path.split("?")[0]
        found = discovery(path) or objects.get(path.rsplit("/", 1)[1])
        if path.endswith("/events"):
            found = {"kind": "EventList", "apiVersion": "v1", "items": []}
        elif path.endswith("/shop/podchaos"):
            found = {"kind": "PodChaosList", "apiVersion": VERSION, "metadata": {}, "items": list(objects.values())}
        self.answer_or_missing(found)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/control":
            for one in objects.values():
                one["status"] = injected()
            self.answer({})
        elif "selfsubjectaccessreviews" in self.path:
            kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
            self.answer({**kind, "spec": {}, "status": {"allowed": True}}, 201)
        else:
            one = json.loads(body)
            one["metadata"].update(uid="1", resourceVersion="1")
            objects[one["metadata"]["name"]] = one
            self.answer(one, 201)

    def do_DELETE(self):
        self.answer_or_missing(objects.pop(self.path.split("?")[0].rsplit("/", 1)[1], None))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
