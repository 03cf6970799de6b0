//! A tree as one page: the sessions, a timeline, what was said. It needs nothing from elsewhere, and what strangers
//! said in it is text and nothing else: everything is escaped, and a policy in the page runs no script and applies no
//! style but the page's own two, by their hashes.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use offspring_protocol::{RunRecord, SessionId, Timestamp};
use offspring_sessions::{SessionManager, SessionRecord, ids};
use sha2::{Digest, Sha256};

use super::{Picture, sink::Sink};
use crate::{
    failure::Failure,
    look::wall,
    pages::Pages,
    text::{bytes, counted, duration, instant, plain, plain_lines, sign, word},
};

mod transcript;

use transcript::{Said, Transcript};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// The timeline in units of its own: names, then bars.
const NAMES: f64 = 260.0;
const BARS: f64 = 900.0;
const ROW: usize = 22;
const AXIS: usize = 26;

/// Writes the page.
pub(crate) async fn write(
    manager: &SessionManager,
    picture: &Picture,
    limit: usize,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let sessions = &picture.sessions;
    let places: HashMap<&SessionId, usize> =
        sessions.iter().enumerate().map(|(place, record)| (&record.data.id, place)).collect();
    let mut said: Vec<Transcript> = sessions.iter().map(|_| Transcript::default()).collect();
    let mut pages = Pages::new(manager, &picture.root, picture.last_seq);
    while let Some(page) = pages.next().await? {
        for line in &page {
            if let Some(place) = places.get(&line.session) {
                said[*place].hear(line, limit);
            }
        }
    }
    let mut runs = Vec::with_capacity(sessions.len());
    for record in sessions {
        runs.push(manager.store().runs(record.data.id.clone()).await?);
    }
    let top = &sessions[0];
    let title = escaped(&plain(top.data.agent_name.as_str()));
    sink.put(&format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{}'; style-src '{}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} – offspring</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        hash(SCRIPT),
        hash(STYLE)
    ))?;
    sink.put(&header(top, sessions))?;
    sink.put(&timeline(sessions, &places, &runs))?;
    sink.put("<main class=\"panes\">\n<nav aria-label=\"Sessions\">\n<h2>Sessions</h2>\n")?;
    sink.put(&tree(sessions, &places))?;
    sink.put("</nav>\n<div id=\"transcripts\">\n")?;
    for ((place, record), said) in sessions.iter().enumerate().zip(said) {
        sink.put(&article(place, record, &places, &runs[place], said))?;
    }
    sink.put(&format!("</div>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"))
}

fn header(top: &SessionRecord, sessions: &[SessionRecord]) -> String {
    let state = word(top.run_state());
    let took = wall(top).map(duration).unwrap_or_default();
    let count = counted(sessions.len(), "session", "sessions");
    format!(
        "<a class=\"skip\" href=\"#transcripts\">To the transcripts</a>\n<header>\n<div>\n<h1>{}</h1>\n\
         <p class=\"facts\"><span class=\"sign {state}\">{} {state}</span> · {took} · {count} · {} · {}</p>\n</div>\n\
         <form role=\"search\">\n<label for=\"q\">Search</label>\n<input id=\"q\" type=\"search\" autocomplete=\"off\" \
         placeholder=\"in all transcripts ( / )\">\n<span id=\"count\" class=\"count\" aria-live=\"polite\"></span>\n\
         <button type=\"button\" id=\"open\">Unfold all</button>\n<button type=\"button\" id=\"close\">Fold all</button>\n\
         </form>\n</header>\n",
        name(top),
        sign(top.run_state()),
        escaped(&instant(top.data.created_at)),
        escaped(&plain(top.data.id.as_str()))
    )
}

/// Every session in a row, each of its runs a bar.
fn timeline(
    sessions: &[SessionRecord],
    places: &HashMap<&SessionId, usize>,
    runs: &[Vec<RunRecord>],
) -> String {
    let now = ids::now();
    let end_of = |run: &RunRecord| run.ended_at.unwrap_or(now).max(run.opened_at);
    let all = || runs.iter().flatten();
    let start = all().map(|run| run.opened_at).min().unwrap_or(now);
    let span = all().map(|run| end_of(run).since_ms(start)).max().unwrap_or(0).max(1);
    let x = |at: Timestamp| NAMES + BARS * ratio(at.since_ms(start), span);
    let order = in_order(sessions, places);
    let height = AXIS + order.len() * ROW + 6;
    let mut svg = format!(
        "<section class=\"timeline\" aria-label=\"Timeline\">\n<h2>Timeline</h2>\n<div class=\"chart\" tabindex=\"0\">\n\
         <svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"Timeline of {} over {}. The same times stand in \
         the list of sessions.\">\n",
        NAMES + BARS + 20.0,
        counted(order.len(), "session", "sessions"),
        duration(Duration::from_millis(span)),
    );
    let step = step(span);
    let mut tick = 0;
    while tick <= span {
        let at = NAMES + BARS * ratio(tick, span);
        let label = duration(Duration::from_millis(tick));
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{AXIS}\" y2=\"{height}\"/><text class=\"tick\" x=\"{:.1}\" y=\"17\">{label}</text>",
            at + 3.0
        );
        tick += step;
    }
    for (row, (place, depth)) in order.into_iter().enumerate() {
        let record = &sessions[place];
        let y = AXIS + row * ROW;
        let indent = 8 + 14 * depth.min(10);
        let shown: String = plain(record.data.agent_name.as_str()).chars().take(30).collect();
        let _ = write!(
            svg,
            "<g data-s=\"s{place}\"><text x=\"{indent}\" y=\"{}\">{}</text>",
            y + 15,
            escaped(&shown)
        );
        for run in &runs[place] {
            let (from, to) = (x(run.opened_at), x(end_of(run)));
            let took = duration(Duration::from_millis(end_of(run).since_ms(run.opened_at)));
            let _ = write!(
                svg,
                "<rect class=\"bar {0}\" x=\"{from:.1}\" y=\"{1}\" width=\"{2:.1}\" height=\"{3}\" rx=\"3\">\
                 <title>{4}: {0}, {took}</title></rect>",
                run.state.as_str(),
                y + 4,
                (to - from).max(2.0),
                ROW - 8,
                escaped(&shown)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n</div>\n</section>\n");
    svg
}

/// As parts of the whole, for a picture.
#[allow(clippy::cast_precision_loss, reason = "a pixel is wider than what is lost")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Milliseconds between two ticks: at most ten of them.
fn step(span: u64) -> u64 {
    let steps =
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000];
    steps.into_iter().find(|step| span / step <= 10).unwrap_or((span / 10).max(1))
}

/// The sessions as a tree is read, with their depth below the first.
fn in_order(sessions: &[SessionRecord], places: &HashMap<&SessionId, usize>) -> Vec<(usize, usize)> {
    let children = children(sessions, places);
    let mut order = Vec::with_capacity(sessions.len());
    let mut stack = vec![(0, 0)];
    while let Some((place, depth)) = stack.pop() {
        order.push((place, depth));
        stack.extend(children[place].iter().rev().map(|child| (*child, depth + 1)));
    }
    order
}

fn children(sessions: &[SessionRecord], places: &HashMap<&SessionId, usize>) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); sessions.len()];
    for (place, record) in sessions.iter().enumerate().skip(1) {
        if let Some(parent) = record.data.parent_id.as_ref().and_then(|parent| places.get(parent)) {
            children[*parent].push(place);
        }
    }
    children
}

fn tree(sessions: &[SessionRecord], places: &HashMap<&SessionId, usize>) -> String {
    let children = children(sessions, places);
    let mut html = String::from("<ul>\n");
    // What is closed after a session comes back from the stack.
    let mut stack = vec![Ok(0)];
    while let Some(next) = stack.pop() {
        match next {
            Err(end) => html.push_str(end),
            Ok(place) => {
                let record = &sessions[place];
                let state = word(record.run_state());
                let took = wall(record).map(duration).unwrap_or_default();
                let row = format!(
                    "<span class=\"sign {state}\" aria-hidden=\"true\">{}</span> <a href=\"#s{place}\">{}</a> \
                     <span class=\"when\">{state} {took}</span>",
                    sign(record.run_state()),
                    name(record)
                );
                if children[place].is_empty() {
                    let _ = writeln!(html, "<li class=\"leaf\" data-s=\"s{place}\">{row}</li>");
                } else {
                    let _ = writeln!(
                        html,
                        "<li data-s=\"s{place}\"><details open><summary>{row}</summary>\n<ul>"
                    );
                    stack.push(Err("</ul></details></li>\n"));
                    stack.extend(children[place].iter().rev().map(|child| Ok(*child)));
                }
            }
        }
    }
    html.push_str("</ul>\n");
    html
}

fn article(
    place: usize,
    record: &SessionRecord,
    places: &HashMap<&SessionId, usize>,
    runs: &[RunRecord],
    said: Transcript,
) -> String {
    let data = &record.data;
    let mut html = format!(
        "<article id=\"s{place}\" aria-labelledby=\"h{place}\">\n<h3 id=\"h{place}\"><span class=\"sign {0}\">{1}</span> {2}</h3>\n<dl>",
        word(record.run_state()),
        sign(record.run_state()),
        name(record)
    );
    let mut row = |key: &str, value: &str| {
        let _ = write!(html, "<dt>{key}</dt><dd>{}</dd>", escaped(&plain(value)));
    };
    row("session", data.id.as_str());
    row("state", word(record.run_state()));
    row("type", data.agent_type.as_str());
    if let Some(source) = &data.source_type {
        row("delegated", source.as_str());
    }
    if let Some(cwd) = &data.cwd {
        row("directory", cwd);
    }
    row("created", &instant(data.created_at));
    if runs.len() != 1 {
        row("runs", &runs.len().to_string());
    }
    let not_kept: u64 = runs.iter().map(|run| run.left_out_bytes).sum();
    if not_kept > 0 {
        row("not kept", &format!("{} of its output", bytes(not_kept)));
    }
    html.push_str("</dl>\n");
    if let Some(parent) = data.parent_id.as_ref().and_then(|parent| places.get(parent)) {
        let _ = writeln!(html, "<p><a href=\"#s{parent}\">Its parent</a></p>");
    }
    let (head, left_out, tail) = said.parts();
    if head.is_empty() {
        html.push_str("<p class=\"label\">Nothing was said.</p>\n");
    }
    head.iter().for_each(|said| element(&mut html, said));
    if left_out > 0 {
        let _ = writeln!(
            html,
            "<p class=\"left\">{} are left out here; <code>offspring show {}</code> has them, and so has an export with \
             a greater <code>--transcript-bytes</code>.</p>",
            bytes(left_out),
            escaped(&plain(data.id.as_str()))
        );
    }
    tail.iter().for_each(|said| element(&mut html, said));
    html.push_str("</article>\n");
    html
}

fn element(html: &mut String, said: &Said) {
    let _ = writeln!(
        html,
        "<div class=\"label\">{0}</div><pre class=\"{0}\">{1}</pre>",
        said.class,
        escaped(&plain_lines(&said.text))
    );
}

/// A name that may be written from right to left does not reorder what stands beside it.
fn name(record: &SessionRecord) -> String {
    format!("<bdi>{}</bdi>", escaped(&plain(record.data.agent_name.as_str())))
}

/// Text for an element or a quoted attribute.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

/// As a policy names a script or a style: by the hash of its text, in base64.
fn hash(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut code = String::from("sha256-");
    for three in Sha256::digest(text).chunks(3) {
        let bits = (0..3)
            .fold(0_usize, |bits, place| bits << 8 | three.get(place).map_or(0, |byte| usize::from(*byte)));
        for place in 0..4 {
            let letter = LETTERS[bits >> (18 - 6 * place) & 63];
            code.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    code
}
