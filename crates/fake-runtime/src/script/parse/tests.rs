use super::*;

fn error(text: &str) -> String {
    script(text).unwrap_err().to_string()
}

#[test]
fn every_statement_is_read() {
    let text = r#"# What it shows.
# In two lines.

version 1
rule T4 W1
without session/wait
strict
drive at-once
on shutdown exit 3
on stdin-end ignore
on sigterm exit
prompt $who as p
take session/prompt root as q   # taken, not answered
take shutdown
wait-for request initialize
wait-for notification x
wait-for stdin-end
-> $who
started $who a -> root, $who
finished root a error error "text"
finished root a
status a idle
event a some/type {"x":"${p.text}","id":${p.id}}
receipt root p
receipt root id m-1
turn-start root
turn-end root
turn-end root error CODE "why"
message root "four"
notify any/thing [1]
notify any/thing
filler root 16MiB+1
environment root
line {"id":${q.id},"result":{},"error":null} -> root
bytes "\xff\n"
hex ff 0a
fill 1GiB "y"
reply p {}
reply {}
error p -32603 "no" {"a":1}
error 5 "no"
ask approval/request {"a":1} as a
ask approval/request as b
wait-for answer a error -32601
wait-for answer result {"ok":true}
wait-for answer
together
  repeat 3
    message root "${i}"
  end
end
split every 1 pause 1ms
  message root "x"
end
split at 3 5
  message root "x"
end
split inside-characters
  message root "x"
end
after 10m
gate name within 5s
stderr "text"
stderr-bytes "\x00"
stderr-fill 10MiB
close-stdout
close-stdin
stop-reading
start-reading
leave-behind 30s
mute
kill
kill ABRT
exit 7
expect turn root final "four" finish completed end idle
expect turn root end gone
expect open root a b
expect path b root a b
expect request session/wait timeout
expect request x error -32601 "text"
expect request x result {"a":1}
expect diagnostic not-json 2
expect stderr "text"
expect exit 7
"#;
    let script = script(text).unwrap();
    assert_eq!(script.about, "What it shows.\nIn two lines.");
    assert_eq!(script.rules, ["T4", "W1"]);
    // Each statement that can begin a line has begun one.
    for statement in STATEMENTS {
        let begins = text.lines().any(|line| line.split_whitespace().next() == Some(statement));
        assert!(begins, "{statement} is in no line of this test");
    }
    assert_eq!(script.settings.shutdown, OnShutdown::Exit(3));
    assert!(script.settings.prompted.is_none() && script.settings.strict);
}

#[test]
fn a_wrong_line_is_named_with_what_and_what_to_do() {
    assert_eq!(
        error("\n  wobble root a\n"),
        "line 2: there is no statement `wobble`; docs/formats/runtime-script.md lists the statements"
    );
    assert_eq!(
        error("after 5"),
        "line 1: `5` is no duration: write 250ms, 10s, 2m or 1h; docs/formats/runtime-script.md lists the statements"
    );
    for (text, words) in [
        ("strat root a", "there is no statement"),
        ("startd root a", "did you mean `started`?"),
        ("started root", "`started` needs a session"),
        ("started root a b", "does not take `b`"),
        ("event root x {\"a\":}", "no JSON"),
        ("reply q {}", "`take METHOD as q`"),
        ("message root \"${p.id}\"", "stands for nothing here"),
        ("message root \"${i}\"", "stands for nothing here"),
        ("together", "has no `end`"),
        ("end", "closes nothing"),
        ("together\nafter 1s\nend", "put only what is written"),
        ("together\nsplit every 1", "close that block first"),
        ("split every 0", "every 0 bytes"),
        ("version 2", "reads version 1"),
        ("gate ../x", "name of a file"),
        ("kill HUP", "KILL or ABRT"),
        ("on nothing exit", "write one of shutdown, stdin-end, sigterm"),
        ("exit 256", "0 to 255"),
        ("status root idle ->", "does not take `->`"),
        ("-> ", "names nobody"),
        ("\"x\"", "is no statement"),
    ] {
        let error = error(text);
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn a_raw_line_is_taken_as_it_stands() {
    let script = script(r#"line {"a":"x -> y # {"} -> root"#).unwrap();
    let Statement::Emit(Emit::Line(text)) = &script.body[0].what else { unreachable!() };
    assert_eq!(text.0, r#"{"a":"x -> y # {"}"#);
    assert_eq!(script.body[0].to.as_deref().unwrap(), [Text("root".into())]);
}

const LANGUAGE: &str = include_str!("../../../../../docs/formats/runtime-script.md");
const README: &str = include_str!("../../../README.md");

#[test]
fn every_statement_is_on_the_page_and_every_script_of_the_pages_is_read() {
    let described: BTreeSet<&str> = LANGUAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('|').map(|(cell, _)| cell))
        .flat_map(|cell| cell.split("`, `").map(|word| word.trim_matches([' ', '`'])))
        .filter_map(|usage| usage.split(' ').next())
        .collect();
    for statement in STATEMENTS {
        assert!(
            *statement == "end" || described.contains(statement),
            "the page does not describe {statement}"
        );
    }
    let mut blocks = 0;
    for page in [LANGUAGE, README] {
        for block in page.split("```script\n").skip(1) {
            let text = block.split("```").next().unwrap();
            let read = script(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
            assert!(!read.expects.is_empty());
            blocks += 1;
        }
    }
    assert_eq!(blocks, 2);
}
