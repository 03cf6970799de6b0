//! The page of `offspring export --format html`, in a real browser: it loads without a complaint, its search works,
//! and what strangers said in it is text.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use offspring_tests::World;

#[path = "looking/plant.rs"]
mod plant;
use plant::Plant;

/// The browser that `cargo xtask test` found or installed; `None` where it could not be fetched.
fn browser(test: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("OFFSPRING_CHROMIUM") {
        return Some(named.into());
    }
    let skipped = std::env::var("OFFSPRING_SKIP_PEERS").unwrap_or_default();
    if skipped.split(',').any(|peer| peer == "chromium") {
        let file = std::env::var_os("OFFSPRING_SKIPPED_FILE").expect("where skips are counted");
        let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
        writeln!(file, "chromium {test}").unwrap();
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found =
        std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|it| it.is_file());
    Some(found.expect("a browser: run `cargo xtask test`, or name one in OFFSPRING_CHROMIUM"))
}

/// Opens a page; gives the document as it is after its script ran, and what the browser's console said.
fn opened(world: &World, browser: &Path, page: &Path, fragment: &str, more: &[&str]) -> (String, String) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command.env("HOME", world.path("home"));
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=3000",
    ]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).args(more);
    let done = command.arg(format!("file://{}{fragment}", page.display())).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stderr);
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    (String::from_utf8_lossy(&done.stdout).into_owned(), console.join("\n"))
}

const HOSTILE: [&str; 5] = [
    "</script><script>document.title='PWNED'</script>",
    "<img src=x onerror=\"document.title='PWNED'\">",
    "\"><svg onload=document.title='PWNED'>",
    "]]> --> </style></title></pre></article><b id=pwned>",
    "&lt;b&gt; \u{202e}javascript:document.title='PWNED'",
];

/// A tree whose names, prompts, answers and errors are all hostile; one session says `needle`.
fn page() -> (World, PathBuf) {
    let world = World::new();
    let plant = Plant::new(&world.db());
    let root = plant.root("top", HOSTILE[0]);
    for text in HOSTILE {
        let child = plant.child(&root, text, text);
        plant.says(&child, &[text, "\n"]);
        plant.fails(child, text);
    }
    let child = plant.child(&root, "seeker", "look");
    let below = plant.child(&child, "below", "deeper");
    plant.says(&below, &["a nee", "dle in the hay"]);
    plant.answers(below, "");
    plant.answers(child, "");
    plant.answers(root, &"long ".repeat(100_000));
    plant.close();
    let page = world.path("page.html");
    let path = page.to_str().unwrap();
    world.offspring(&["export", "--format", "html", "-o", path, "--transcript-bytes", "1000"]).with(0);
    (world, page)
}

#[test]
fn w11_what_strangers_said_is_text_in_the_page() {
    let (_world, page) = page();
    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(html.matches("<script").count(), 1);
    for part in ["PWNED'</script>", "<img", "<svg onload", "<b id=pwned>", "\u{202e}"] {
        assert!(!html.contains(part), "{part}");
    }
    for part in ["http://", "https://", " style=", "javascript:\"", "src="] {
        assert_eq!(html.replace("&lt;img src=x", "").matches(part).count(), 0, "{part}");
    }
    assert!(html.contains("default-src 'none'; script-src 'sha256-"));
    // A long transcript says how much of it is not there.
    assert!(html.contains("are left out here") && html.len() < 60_000, "{}", html.len());
}

#[test]
fn a_browser_shows_it_without_a_complaint_and_finds_what_is_searched() {
    let Some(browser) = browser("a_browser_shows_it_without_a_complaint_and_finds_what_is_searched") else {
        return;
    };
    let (world, page) = page();
    let (dom, console) = opened(&world, &browser, &page, "", &["--dump-dom"]);
    // No error, no refused resource, no script or style that the page's policy stopped.
    assert_eq!(console, "");
    assert!(dom.contains("data-ready=\"yes\""), "its script ran");
    assert!(
        dom.contains("<title>top – offspring</title>") && !dom.contains("id=\"pwned\""),
        "no other one did"
    );
    assert_eq!(dom.matches("<article").count(), 8);
    let (dom, console) = opened(&world, &browser, &page, "#q=NEEDLE", &["--dump-dom"]);
    assert_eq!(console, "");
    assert!(dom.contains(">1 of 8 sessions<"), "a text across two pieces is found");
    let hidden = dom.matches("<li class=\"leaf\" data-s=").count()
        - dom.matches("<li class=\"leaf\" data-s=\"s7\">").count();
    assert_eq!(
        dom.matches("hidden=\"\"").count(),
        hidden,
        "what does not have it is hidden, what leads to it is not"
    );
    // For the picture in the documentation: OFFSPRING_PICTURE names the file.
    let shot = std::env::var_os("OFFSPRING_PICTURE").map_or_else(|| world.path("page.png"), PathBuf::from);
    let option = format!("--screenshot={}", shot.display());
    opened(&world, &browser, &page, "", &["--window-size=1360,860", "--hide-scrollbars", &option]);
    assert!(std::fs::read(shot).unwrap().starts_with(b"\x89PNG"));
}
