//! The table of routes.

use std::collections::BTreeSet;

use sickbay_server::{Permission, routes};

use crate::scene::Scene;

#[test]
fn every_route_has_a_permission_and_only_health_is_open() {
    let routes = routes();
    assert!(routes.len() >= 30, "only {} routes", routes.len());
    let open: Vec<_> = routes.iter().filter(|route| route.permission == Permission::Open).collect();
    assert_eq!(open.iter().map(|route| route.path).collect::<Vec<_>>(), ["/v1/health"]);
    let names: BTreeSet<_> = routes.iter().map(|route| route.permission.as_str()).collect();
    assert_eq!(names.len(), 9, "a permission without a route, or two of one name: {names:?}");
}

#[test]
fn no_route_stands_twice_in_the_table_and_reading_is_never_a_post() {
    let mut seen = BTreeSet::new();
    for route in routes() {
        assert!(seen.insert((route.method.to_string(), route.path)), "{} {}", route.method, route.path);
        let reads = matches!(route.permission, Permission::ReadQueues | Permission::ReadMessages);
        assert_eq!(reads, route.method == "GET" && reads, "{}", route.path);
    }
}

#[tokio::test]
async fn every_route_of_the_table_is_there() {
    let scene = Scene::new().await;
    for route in routes() {
        let path = route.path.replace("{queue}", "orders").replace("{id}", "zzz").replace("{key}", "k");
        if path.ends_with("/presence") {
            continue; // its answer never ends
        }
        let (_, _, answer) = scene.send(route.method.as_str(), &path, "").await;
        assert_ne!(answer["code"], "SB0024", "{} {path}", route.method);
    }
}

#[tokio::test]
async fn what_is_no_route_is_a_problem() {
    let scene = Scene::new().await;
    for path in ["/", "/v1", "/v1/nothing", "/v2/push", "/v1/queues/orders/nothing"] {
        let (status, code, detail) = scene.refused("GET", path, "").await;
        assert_eq!((status, code.as_str()), (404, "SB0024"), "{path}");
        assert!(detail.contains(path));
    }
    let (status, code, detail) = scene.refused("DELETE", "/v1/queues", "").await;
    assert_eq!((status, code.as_str()), (405, "SB0024"));
    assert_eq!(detail, "/v1/queues cannot be called with DELETE");
}
