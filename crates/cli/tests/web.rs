//! `bentpipe web` as who asks meets it: over HTTP, with the real program behind it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/web.rs"]
mod server;

use serde_json::{Value, json};
use server::{GEO, Web};
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn nobody_is_answered_without_the_token() {
    let web = Web::start(&[]);
    let host = web.host();
    for path in [
        "/api/about",
        "/api/runs",
        "/api/runs/x/events",
        "/main.js",
        "/advisor/",
        "/no/such",
    ] {
        let said = web.raw(&format!("GET {path}"), &host, b"");
        assert_eq!(said.status, 401, "{path}");
        assert!(
            said.json()["error"].as_str().unwrap().contains("no token"),
            "{path}"
        );
    }
    let run = json!({ "lab": false, "variants": [{ "label": "x", "text": GEO }] }).to_string();
    assert_eq!(web.raw("POST /api/runs", &host, run.as_bytes()).status, 401);
    assert_eq!(fs::read_dir(web.results.path()).unwrap().count(), 0);
    // The page without a token asks for it, and shows nothing else.
    let said = web.raw("GET /", &host, b"");
    assert!(said.status == 401 && said.body.contains("Which token?"));
    assert_eq!(web.raw("GET /?token=0000", &host, b"").status, 403);

    // The right one is taken once, for a cookie that scripts and other sites do not have.
    let said = web.raw(&format!("GET /?token={}", web.token), &host, b"");
    assert!(
        said.status == 303 && said.head.contains("\nlocation: /\r"),
        "{}",
        said.head
    );
    let cookie = said.header("set-cookie");
    assert!(
        cookie.contains("httponly") && cookie.contains("samesite=strict"),
        "{cookie}"
    );
    let cookie = format!("{host}Cookie: bentpipe-{}={}\r\n", web.at.port(), web.token);
    assert_eq!(web.raw("GET /api/about", &cookie, b"").status, 200);
    // An order by cookie says which page it comes from, and that is this server's.
    assert_eq!(
        web.raw("POST /api/runs", &cookie, run.as_bytes()).status,
        403
    );
    for (origin, status) in [("http://evil.example", 403), ("null", 403), ("", 403)] {
        let head = format!("{cookie}Origin: {origin}\r\n");
        assert_eq!(
            web.raw("POST /api/runs", &head, run.as_bytes()).status,
            status,
            "{origin}"
        );
    }
    assert_eq!(fs::read_dir(web.results.path()).unwrap().count(), 0);
    let own = format!("{cookie}Origin: http://{}\r\n", web.at);
    assert_eq!(web.raw("POST /api/runs", &own, run.as_bytes()).status, 200);
    // By pasting it, as a form sends it.
    let form = format!("token=http%3A%2F%2F{}%2F%3Ftoken%3D{}", web.at, web.token);
    assert_eq!(web.raw("POST /login", &host, form.as_bytes()).status, 303);
    assert_eq!(web.raw("POST /login", &host, b"token=0").status, 403);
}

#[test]
fn a_name_that_is_made_to_lead_here_is_refused() {
    let web = Web::start(&["--name", "testbed.example"]);
    let token = format!("Authorization: Bearer {}\r\n", web.token);
    let port = web.at.port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1:1".to_owned(),
    ] {
        let said = web.raw("GET /api/about", &format!("Host: {host}\r\n{token}"), b"");
        assert_eq!(said.status, 421, "{host}");
    }
    assert_eq!(web.raw("GET /api/about", &token, b"").status, 421);
    // Two hosts, of which a proxy may have gone by the other.
    let twice = format!("{}Host: evil.example\r\n{token}", web.host());
    assert_eq!(web.raw("GET /api/about", &twice, b"").status, 400);
    let own = web.bearer();
    for (host, status) in [("evil.example".to_owned(), 400), (web.at.to_string(), 200)] {
        let said = web.raw(&format!("GET http://{host}/api/about"), &own, b"");
        assert_eq!(said.status, status, "{host}");
    }
    for host in [format!("localhost:{port}"), "testbed.example".to_owned()] {
        let said = web.raw("GET /api/about", &format!("Host: {host}\r\n{token}"), b"");
        assert_eq!(said.status, 200, "{host}");
    }
}

#[test]
fn every_answer_keeps_the_browser_to_this_server() {
    let web = Web::start(&[]);
    for path in [
        "/",
        "/main.js",
        "/report.css",
        "/api/about",
        "/api/runs/none",
        "/nothing/here",
    ] {
        let said = web.get(path);
        let policy = said.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';")
                && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: same-origin",
        ] {
            assert!(said.head.contains(header), "{path}: {header}");
        }
    }
}

#[test]
fn nothing_outside_the_results_is_had() {
    let web = Web::start(&[]);
    let id = web.run(GEO, false);
    web.until(&id, &["done"]);
    let own = web.results.path().join(&id);
    std::os::unix::fs::symlink("/etc/passwd", own.join("passwd")).unwrap();
    std::os::unix::fs::symlink("/etc", web.results.path().join("etc")).unwrap();
    assert_eq!(
        web.get(&format!("/api/runs/{id}/files/result.json")).status,
        200
    );
    for path in [
        "/../../etc/passwd".to_owned(),
        "/..%2f..%2fetc%2fpasswd".to_owned(),
        "/api/runs/..%2f..".to_owned(),
        "/api/runs/../../etc/passwd".to_owned(),
        "/api/runs/etc".to_owned(),
        "/api/runs/etc/files/passwd".to_owned(),
        format!("/api/runs/{id}/files/passwd"),
        format!("/api/runs/{id}/files/..%2f..%2f..%2fetc%2fpasswd"),
        format!("/api/runs/{id}/files/%2fetc%2fpasswd"),
        format!("/api/runs/{id}/files/.%2e"),
        format!("/api/runs/{id}/captures/..%2fresult.json"),
        format!("/api/runs/{id}/trace/..%2fresult.json"),
        format!("/api/runs/{id}/files/none"),
        "/api/runs/none".to_owned(),
        "/api/runs/none/events".to_owned(),
        "/api/runs/none/files/result.json".to_owned(),
        "/api/scenarios/..%2fCargo.toml".to_owned(),
        "/api/report/all/..%2f..%2fetc%2fpasswd".to_owned(),
        "/advisor/..%2f..%2fetc%2fpasswd".to_owned(),
    ] {
        let said = web.get(&path);
        assert_eq!(said.status, 404, "{path}: {}", said.body);
        assert!(!said.body.contains("root:"), "{path}");
    }
    for order in ["stop", "again"] {
        assert_eq!(
            web.post(&format!("/api/runs/none/{order}"), &json!({}))
                .status,
            404
        );
    }
    assert_eq!(
        web.post(&format!("/api/runs/{id}/stop"), &json!({})).status,
        409
    );
    assert_eq!(
        web.raw(&format!("DELETE /api/runs/{id}"), &web.bearer(), b"")
            .status,
        405
    );
}

#[test]
fn what_is_too_much_or_wrong_is_refused_in_words() {
    let web = Web::start(&[]);
    let much = vec![b'a'; 10 << 20];
    let said = web.raw("POST /api/check", &web.bearer(), &much);
    assert_eq!(said.status, 413, "{}", said.body);
    for body in [
        "",
        "{",
        "[]",
        "{\"text\":1}",
        "null",
        "{\"lab\":false,\"variants\":[]}",
    ] {
        for path in ["/api/runs", "/api/check"] {
            let said = web.raw(&format!("POST {path}"), &web.bearer(), body.as_bytes());
            assert!(
                said.status == 422 && said.json()["error"].is_string(),
                "{path} {body}: {}",
                said.body
            );
        }
    }
    let check = |text: &str, settings: Value| {
        web.post("/api/check", &json!({ "text": text, "settings": settings }))
            .json()
    };
    let wrong = check(&GEO.replace("delay", "dealy"), json!([]));
    let problem = &wrong["problems"][0];
    assert_eq!(problem["line"], 16, "{wrong}");
    assert!(
        problem["words"]
            .as_str()
            .unwrap()
            .contains("did you mean `delay`?"),
        "{wrong}"
    );
    let wrong = check(GEO, json!([["links.space.rate", "\"fast\""]]));
    assert_eq!(wrong["problems"][0]["key"], "links.space.rate", "{wrong}");
    let right = check(GEO, json!([["links.space.rate", "\"2Mbit/s\""]]));
    assert_eq!(
        right["form"]["links"][1]["directions"][0]["rate"], "2Mbit/s",
        "{right}"
    );
    // A million flows of few letters.
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1kB\"\ncount = 10000\n"
        .repeat(100);
    let many = check(&format!("{GEO}{flows}"), json!([]));
    assert!(
        many["problems"][0]["words"]
            .as_str()
            .unwrap()
            .contains("1000001 flows"),
        "{many}"
    );
    let said = web.post("/api/runs", &json!({ "lab": false, "variants": [{ "label": "a", "text": GEO }, { "label": "b", "text": "name = 1" }] }));
    assert!(
        said.status == 422 && said.json()["problems"][0]["line"] == 1,
        "{}",
        said.body
    );
    assert_eq!(
        fs::read_dir(web.results.path()).unwrap().count(),
        0,
        "all or none"
    );
}

#[test]
fn without_a_gateway_its_page_says_so() {
    let web = Web::start(&["--control", "/nowhere/gateway.sock"]);
    let said = web.get("/api/gateway").json();
    assert!(
        said["absent"]
            .as_str()
            .unwrap()
            .contains("/nowhere/gateway.sock"),
        "{said}"
    );
    assert_eq!(web.post("/api/gateway/reload", &json!({})).status, 502);
    assert_eq!(web.post("/api/gateway/explode", &json!({})).status, 404);
}

#[test]
fn five_hundred_at_once_are_all_answered() {
    let web = Web::start(&[]);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let asking: Vec<_> = (0..500)
            .map(|_| scope.spawn(|| web.get("/api/queue").status))
            .collect();
        asking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 500]);
}

/// Who opens a connection and says nothing, or not all of it, has it for a while and no more.
#[test]
fn who_says_nothing_is_let_go() {
    let web = Web::start(&[]);
    let mut streams: Vec<TcpStream> = (0..300)
        .filter_map(|_| TcpStream::connect(web.at).ok())
        .collect();
    for stream in &mut streams {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
    }
    // Who has the token does not wait until their time is up, which is 15 s.
    let began = Instant::now();
    assert_eq!(web.get("/api/about").status, 200);
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}
