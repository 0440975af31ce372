"""Judges exported runs with the programs of their communities, without the network.

judge.py crate DIR      roc-validator with the profile Provenance Run Crate
judge.py report DIR     runcrate tells what each action did
judge.py wfformat FILE  wfcommons reads it

The one document that the validator would fetch, the context of RO-Crate, is in the package `rocrate`.
"""

import io
import json
import pathlib
import sys


def answered_from_the_package(self, request, **_):
    """Answers like the host of the context would; everything else is not there."""
    import requests
    import rocrate
    import urllib3

    is_known = "w3id.org/ro/crate/" in request.url
    file = pathlib.Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld"
    # The package has a newer context, in which terms of Bioschemas are elsewhere than in that of RO-Crate 1.1.
    text = file.read_text().replace("https://bioschemas.org/terms/", "https://bioschemas.org/")
    body = text.encode() if is_known else b"{}"
    response = requests.Response()
    response.request, response.url, response.encoding = request, request.url, "utf-8"
    response.status_code = 200 if is_known else 404
    response.headers["Content-Type"] = "application/ld+json"
    response._content = body
    response.raw = urllib3.HTTPResponse(body=io.BytesIO(body), status=response.status_code, preload_content=False)
    return response


def crate(path):
    import requests.adapters

    requests.adapters.HTTPAdapter.send = answered_from_the_package
    from rocrate_validator import models, services

    settings = services.ValidationSettings(
        rocrate_uri=path,
        profile_identifier="provenance-run-crate-0.5",
        requirement_severity=models.Severity.REQUIRED,
        no_cache=True,
    )
    result = services.validate(settings)
    issues = list(result.get_issues(models.Severity.REQUIRED))
    for issue in issues:
        print(f"{issue.check.identifier}: {issue.message}")
    checks = len(result.executed_checks) if hasattr(result, "executed_checks") else None
    print(json.dumps({"issues": len(issues), "checks": checks}))
    sys.exit(1 if issues else 0)


def report(path):
    from runcrate.report import dump_crate_actions

    dump_crate_actions(path)


def wfformat(path):
    from wfcommons import Instance

    # Its schema is not in the package; reading it whole, with its checks of meaning, is the test.
    schema = pathlib.Path("schema.json")
    schema.write_text("{}")
    instance = Instance(pathlib.Path(path), schema_file=schema)
    print(json.dumps({"name": instance.name, "tasks": len(instance.workflow.tasks)}))


if __name__ == "__main__":
    {"crate": crate, "report": report, "wfformat": wfformat}[sys.argv[1]](sys.argv[2])
