"""Which ResourceQuotas and LimitRanges are none, in the words of a real cluster."""

from typing import Any

from tests.conformance.amounts import try_to_create
from tests.conformance.client import Api, Object
from tests.conformance.objects import check_refusal, make_failure

Told = tuple[str, str]
EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
    " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
    " ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
VALUES = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
TERM = "spec.scopeSelector.matchExpressions"
LIMIT = "spec.limits[0]"


def quota(hard: Object, **spec: Any) -> Object:
    return {"hard": hard, **spec}


def term(name: str, operator: str, *values: str) -> Object:
    expression = {"scopeName": name, "operator": operator, "values": list(values)}
    return quota({"pods": "1"}, scopeSelector={"matchExpressions": [expression]})


def limit(type_: str = "Container", **amounts: str) -> Object:
    return {"limits": [{"type": type_, **{name: {"cpu": one} for name, one in amounts.items()}}]}


QUOTAS: tuple[tuple[Object, list[Told]], ...] = (
    (quota({"pods": "-1"}), [("spec.hard[pods]", '"-1": must be greater than or equal to 0')]),
    (quota({"pods": "1.5"}), [("spec.hard[pods]", '"1500m": must be an integer')]),
    (quota({"count/pods": "0.5"}), [("spec.hard[count/pods]", '"500m": must be an integer')]),
    (
        quota({"foo": "1"}),
        [
            ("spec.hard[foo]", '"foo": must be a standard resource type or fully qualified'),
            ("spec.hard[foo]", '"foo": must be a standard resource for quota'),
        ],
    ),
    (quota({"memory": "0.5", "count/foo": "1", "requests.nvidia.com/gpu": "1.5"}), []),
    (
        quota({"configmaps": "1"}, scopes=["Terminating"]),
        [("spec.scopes", '["Terminating"]: unsupported scope applied to resource')],
    ),
    (
        quota({"pods": "1", "cpu": "1"}, scopes=["BestEffort"]),
        [("spec.scopes", '["BestEffort"]: unsupported scope applied to resource')],
    ),
    (
        quota({"pods": "1"}, scopes=["Terminating", "NotTerminating"]),
        [("spec.scopes", '["Terminating","NotTerminating"]: conflicting scopes')],
    ),
    (quota({"pods": "1"}, scopes=["X"]), [("spec.scopes", '["X"]: unsupported scope')]),
    (
        term("X", "In"),
        [(f"{TERM}.scopeName", '"X": unsupported scope'), (f"{TERM}.values", VALUES)],
    ),
    (
        term("PriorityClass", "Foo", "a"),
        [(f"{TERM}.operator", '"Foo": not a valid selector operator')],
    ),
    (term("BestEffort", "In", "a"), [(f"{TERM}.operator", f'"In": {EXISTS}')]),
)
MIN, MAX, DEFAULT, REQUEST = (
    f"{LIMIT}.{name}[cpu]" for name in ("min", "max", "default", "defaultRequest")
)
RATIO = f"{LIMIT}.maxLimitRequestRatio[cpu]"
TOO_BIG = "is greater than"
LIMITS: tuple[tuple[Object, list[Told]], ...] = (
    (
        limit(max="1", min="2"),
        [
            (MIN, f'"2": min value 2 {TOO_BIG} max value 1'),
            (REQUEST, f'"1": min value 2 {TOO_BIG} default request value 1'),
            (DEFAULT, f'"2": min value 2 {TOO_BIG} default value 1'),
        ],
    ),
    (
        limit(max="1", default="2"),
        [
            (REQUEST, f'"2": default request value 2 {TOO_BIG} max value 1'),
            (DEFAULT, f'"1": default value 2 {TOO_BIG} max value 1'),
        ],
    ),
    (
        limit(max="1", defaultRequest="2"),
        [
            (REQUEST, f'"2": default request value 2 {TOO_BIG} max value 1'),
            (REQUEST, f'"2": default request value 2 {TOO_BIG} default limit value 1'),
        ],
    ),
    (limit(maxLimitRequestRatio="0.5"), [(RATIO, '"500m": ratio 500m is less than 1')]),
    (
        limit(max="2", min="1", maxLimitRequestRatio="3"),
        [(RATIO, '"3": ratio 3 is greater than max/min = 2.000000')],
    ),
    (limit("Pod", max="1", min="2"), [(MIN, f'"2": min value 2 {TOO_BIG} max value 1')]),
    (
        limit("X"),
        [(f"{LIMIT}.type", '"X": must be a standard limit type or fully qualified')],
    ),
    (limit("example.org/thing", max="1"), []),
)


async def check(api: Api, namespace: str, kind: str, spec: Object, told: list[Told]) -> None:
    """Check that a spec has just these faults: fields with what is said of their values."""
    given = {"metadata": {"name": "one"}, "spec": spec}
    answer = await try_to_create(api, namespace, given, f"{kind.lower()}s")
    if not told:
        assert answer.status == 201, answer.text
        return
    causes = []
    for field, why in told:
        is_missing = why == VALUES
        reason = "FieldValueRequired" if is_missing else "FieldValueInvalid"
        message = f"{'Required' if is_missing else 'Invalid'} value: {why}"
        causes.append({"reason": reason, "message": message, "field": field})
    said = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
    said = said if len(causes) == 1 else f"[{said}]"
    details = {"name": "one", "kind": kind, "causes": causes}
    message = f'{kind} "one" is invalid: {said}'
    check_refusal(answer, make_failure(422, "Invalid", message, details))


async def test_a_quota_must_make_sense(api: Api, namespace: str) -> None:
    for spec, told in QUOTAS:
        await check(api, namespace, "ResourceQuota", spec, told)


async def test_a_limit_range_must_make_sense(api: Api, namespace: str) -> None:
    for spec, told in LIMITS:
        await check(api, namespace, "LimitRange", spec, told)


async def test_a_type_may_be_limited_once_and_pods_have_no_defaults(
    api: Api, namespace: str
) -> None:
    twice = {"limits": [{"type": "Container"}, {"type": "Container"}]}
    why = "Forbidden: may not be specified when `type` is 'Pod'"
    for spec, causes in (
        (
            twice,
            [("FieldValueDuplicate", 'Duplicate value: "Container"', "spec.limits[1].type")],
        ),
        (
            limit("Pod", default="1", defaultRequest="1"),
            [
                ("FieldValueForbidden", why, f"{LIMIT}.default"),
                ("FieldValueForbidden", why, f"{LIMIT}.defaultRequest"),
            ],
        ),
    ):
        given = {"metadata": {"name": "one"}, "spec": spec}
        answer = await try_to_create(api, namespace, given, "limitranges")
        assert answer.status == 422
        assert answer.body["details"]["causes"] == [
            {"reason": reason, "message": message, "field": field}
            for reason, message, field in causes
        ]
