"""What a LimitRange fills in and refuses, in the words of a real cluster."""

from itertools import permutations

import pytest

from tests.conformance.amounts import Amounts, container, create, forbidden, pod, try_to_create
from tests.conformance.client import Answer, Api, Object
from tests.conformance.objects import check_refusal

ANNOTATION = "kubernetes.io/limit-ranger"


async def create_limit_range(api: Api, namespace: str, *limits: Object) -> Object:
    """Create a LimitRange and return its spec."""
    given = {"metadata": {"name": "limits"}, "spec": {"limits": list(limits)}}
    created = await create(api, namespace, given, "limitranges")
    found: Object = created["spec"]
    return found


def check_told(answer: Answer, *told: str) -> None:
    """Check that a pod is refused for these reasons: a real cluster tells them in any order."""
    orders = {
        order[0] if len(order) == 1 else f"[{', '.join(order)}]" for order in permutations(told)
    }
    said = answer.body["message"].removeprefix('pods "one" is forbidden: ')
    assert said in orders
    check_refusal(answer, forbidden(said))


def resources_of(created: Object) -> dict[str, Object]:
    """Return the resources of a pod's containers by their names."""
    spec = created["spec"]
    everybody = [*spec.get("initContainers", []), *spec["containers"]]
    return {one["name"]: one["resources"] for one in everybody}


async def test_what_is_left_out_of_a_limit_range_follows_from_the_rest(
    api: Api, namespace: str
) -> None:
    bounds = {"type": "Container", "max": {"cpu": "1000m"}, "min": {"memory": "65536Ki"}}
    filled = {
        "type": "Container",
        "max": {"cpu": "1"},
        "min": {"memory": "64Mi"},
        "default": {"cpu": "1"},
        "defaultRequest": {"cpu": "1", "memory": "64Mi"},
    }
    of_pods = {"type": "Pod", "max": {"memory": "1.5Gi"}, "maxLimitRequestRatio": {"cpu": "2"}}
    found = await create_limit_range(api, namespace, bounds, of_pods)
    assert found == {"limits": [filled, of_pods | {"max": {"memory": "1536Mi"}}]}
    assert [list(limit) for limit in found["limits"]] == [list(filled), list(of_pods)]


async def test_defaults_are_filled_in_and_an_annotation_says_so(api: Api, namespace: str) -> None:
    await create_limit_range(
        api,
        namespace,
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "512Mi"},
            "defaultRequest": {"cpu": "0.1", "memory": "128Mi"},
        },
    )
    given = pod(
        container("a", {"cpu": "60m"}),
        container("b", limits={"memory": "256Mi"}),
        container("c", {"cpu": "1", "memory": "1Mi"}, {"cpu": "1", "memory": "1Mi"}),
        initContainers=[container("i", {"cpu": "50m", "memory": "64Mi"})],
    )
    given["metadata"]["annotations"] = {ANNOTATION: "mine", "other": "kept"}
    created = (await try_to_create(api, namespace, given)).body
    assert created["metadata"]["annotations"] == {
        ANNOTATION: (
            "LimitRanger plugin set: memory request for container a; cpu, memory limit for"
            " container a; cpu request for container b; cpu limit for container b; cpu, memory"
            " limit for init container i"
        ),
        "other": "kept",
    }
    both = {"cpu": "500m", "memory": "512Mi"}
    tiny = {"cpu": "1", "memory": "1Mi"}
    assert resources_of(created) == {
        "i": {"limits": both, "requests": {"cpu": "50m", "memory": "64Mi"}},
        "a": {"limits": both, "requests": {"cpu": "60m", "memory": "128Mi"}},
        "b": {
            "limits": {"cpu": "500m", "memory": "256Mi"},
            "requests": {"cpu": "100m", "memory": "256Mi"},
        },
        "c": {"limits": tiny, "requests": tiny},
    }
    assert created["status"]["qosClass"] == "Burstable"


async def test_a_pod_that_says_everything_is_left_as_it_is(api: Api, namespace: str) -> None:
    await create_limit_range(api, namespace, {"type": "Container", "default": {"cpu": "500m"}})
    given = pod(container("a", {"cpu": "1m"}, {"cpu": "1m"}))
    created = (await try_to_create(api, namespace, given)).body
    assert "annotations" not in created["metadata"]


async def test_defaults_make_a_pod_guaranteed(api: Api, namespace: str) -> None:
    default = {"cpu": "500m", "memory": "512Mi"}
    await create_limit_range(api, namespace, {"type": "Container", "default": default})
    created = (await try_to_create(api, namespace, pod(container("a")))).body
    assert resources_of(created) == {"a": {"limits": default, "requests": default}}
    assert created["status"]["qosClass"] == "Guaranteed"


async def test_a_default_limit_below_what_is_asked_for_is_a_fault_of_the_pod(
    api: Api, namespace: str
) -> None:
    await create_limit_range(api, namespace, {"type": "Container", "default": {"cpu": "500m"}})
    answer = await try_to_create(api, namespace, pod(container("a", {"cpu": "700m"})))
    assert answer.body["message"] == (
        'Pod "one" is invalid: spec.containers[0].resources.requests: Invalid value: "700m": must'
        " be less than or equal to cpu limit of 500m"
    )


BOUNDS: Object = {
    "type": "Container",
    "max": {"cpu": "1", "memory": "1Gi"},
    "min": {"cpu": "50m"},
    "maxLimitRequestRatio": {"cpu": "10"},
}
POD_BOUNDS: Object = {
    "type": "Pod",
    "max": {"cpu": "1500m", "memory": "1536Mi"},
    "min": {"cpu": "100m"},
    "maxLimitRequestRatio": {"cpu": "2"},
}
RATIO = "cpu max limit to request ratio per {} is {}, but "


def amounts(cpu: str, memory: str) -> Amounts:
    return {"cpu": cpu, "memory": memory}


CASES: dict[str, tuple[Object, Object, tuple[str, ...]]] = {
    "too much": (
        BOUNDS,
        pod(container("a", amounts("1", "1Gi"), amounts("2", "3072Mi"))),
        (
            "maximum cpu usage per Container is 1, but limit is 2",
            "maximum memory usage per Container is 1Gi, but limit is 3Gi",
        ),
    ),
    "too little, which is told once": (
        BOUNDS,
        pod(
            container("a", amounts("20m", "1Mi"), amounts("20m", "1Mi")),
            container("b", amounts("0.02", "1Mi"), amounts("30m", "1Mi")),
            initContainers=[container("i", amounts("1m", "1Mi"), amounts("1m", "1Mi"))],
        ),
        (
            "minimum cpu usage per Container is 50m, but request is 20m",
            "minimum cpu usage per Container is 50m, but request is 1m",
        ),
    ),
    "too far apart": (
        BOUNDS,
        pod(container("a", amounts("60m", "1Mi"), amounts("900m", "1Mi"))),
        (RATIO.format("Container", "10") + "provided ratio is 15.000000",),
    ),
    "apart by a fraction": (
        {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}},
        pod(container("a", {"memory": "172Mi"}, {"memory": "684Mi"})),
        ("memory max limit to request ratio per Container is 2, but provided ratio is 3.976744",),
    ),
    "nothing said of what only has a ratio": (
        {"type": "Container", "maxLimitRequestRatio": {"ephemeral-storage": "2"}},
        pod(container("a")),
        (
            "ephemeral-storage max limit to request ratio per Container is 2, but no request is"
            " specified or request is 0",
        ),
    ),
    "a request without a limit": (
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        pod(container("a", {"cpu": "1"})),
        (RATIO.format("Container", "2") + "no limit is specified or limit is 0",),
    ),
    "nothing said in a whole pod": (
        POD_BOUNDS,
        pod(container("a")),
        (
            "minimum cpu usage per Pod is 100m.  No request is specified",
            "maximum cpu usage per Pod is 1500m.  No limit is specified",
            "maximum memory usage per Pod is 1536Mi.  No limit is specified",
            RATIO.format("Pod", "2") + "no request is specified or request is 0",
        ),
    ),
    "a sum of what some say": (
        POD_BOUNDS,
        pod(container("a", {"cpu": "50m"}, {"cpu": "2"}), container("b")),
        (
            "minimum cpu usage per Pod is 100m, but request is 50m",
            "maximum cpu usage per Pod is 1500m, but limit is 2",
            "maximum memory usage per Pod is 1536Mi.  No limit is specified",
            RATIO.format("Pod", "2") + "provided ratio is 40.000000",
        ),
    ),
    "a sum that is too much": (
        POD_BOUNDS,
        pod(
            container("a", amounts("1", "1Gi"), amounts("1", "1Gi")),
            container("b", amounts("1", "1Gi"), amounts("1", "1Gi")),
            initContainers=[container("i", amounts("1", "1Gi"), amounts("1", "1Gi"))],
        ),
        (
            "maximum cpu usage per Pod is 1500m, but limit is 2",
            "maximum memory usage per Pod is 1536Mi, but limit is 2Gi",
        ),
    ),
    "an init container that needs the most": (
        POD_BOUNDS,
        pod(
            container("a", amounts("1", "1Gi"), amounts("1", "1Gi")),
            initContainers=[container("i", amounts("2", "1Gi"), amounts("2", "1Gi"))],
        ),
        ("maximum cpu usage per Pod is 1500m, but limit is 2",),
    ),
    "one that stays": (
        POD_BOUNDS,
        pod(
            container("a", amounts("1", "1Gi"), amounts("1", "1Gi")),
            initContainers=[
                container("i", amounts("1", "1Gi"), amounts("1", "1Gi"), restartPolicy="Always")
            ],
        ),
        (
            "maximum cpu usage per Pod is 1500m, but limit is 2",
            "maximum memory usage per Pod is 1536Mi, but limit is 2Gi",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_is_out_of_bounds_is_told(api: Api, namespace: str, case: str) -> None:
    bounds, given, told = CASES[case]
    await create_limit_range(api, namespace, bounds)
    check_told(await try_to_create(api, namespace, given), *told)


async def test_what_is_within_bounds_is_let_in(api: Api, namespace: str) -> None:
    await create_limit_range(api, namespace, BOUNDS, POD_BOUNDS)
    exact = amounts("1", "1Gi")
    assert (await try_to_create(api, namespace, pod(container("a", exact, exact)))).status == 201


async def test_containers_and_pods_are_told_of_together(api: Api, namespace: str) -> None:
    one = {"type": "Container", "max": {"cpu": "1"}}
    all_of_them = {"type": "Pod", "max": {"cpu": "1500m"}}
    await create_limit_range(api, namespace, one, all_of_them)
    answer = await try_to_create(api, namespace, pod(container("a", limits={"cpu": "2"})))
    told = (
        "[maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per Pod is"
        " 1500m, but limit is 2]"
    )
    check_refusal(answer, forbidden(told))


async def test_limits_of_claims_are_no_business_of_pods(api: Api, namespace: str) -> None:
    claims = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    await create_limit_range(api, namespace, claims)
    assert (await try_to_create(api, namespace, pod(container("a")))).status == 201


async def test_amounts_of_a_limit_range_must_be_amounts(api: Api, namespace: str) -> None:
    limits = [{"type": "Container", "max": {"cpu": "1x"}}]
    given = {"metadata": {"name": "limits"}, "spec": {"limits": limits}}
    answer = await try_to_create(api, namespace, given, "limitranges")
    assert (answer.status, answer.body["message"]) == (
        400,
        'LimitRange in version "v1" cannot be handled as a LimitRange: quantities must match'
        " the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    )
