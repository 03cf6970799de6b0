//! Uses `offspring-protocol` alone, as a stranger's program would: reads the events of a tree and keeps what was said.

use offspring_protocol::{Event, EventError, RawEvent};

/// The text that a session streamed, from its events in order.
pub fn spoken<'a>(events: impl IntoIterator<Item = &'a RawEvent>) -> Result<String, EventError> {
    let mut text = String::new();
    for event in events {
        if let Event::TextDelta(delta) = event.parse()? {
            text.push_str(&delta.text);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use offspring_protocol::SessionId;
    use offspring_protocol::event::TextDelta;

    use super::*;

    #[test]
    fn a_program_that_only_reads_needs_this_crate_only() {
        let said =
            ["one ", "two"].map(|text| RawEvent::from(&Event::TextDelta(TextDelta { text: text.into() })));
        assert_eq!(spoken(&said).unwrap(), "one two");
    }

    #[test]
    fn ids_refuse_what_a_store_would() {
        assert!(SessionId::new("").is_err());
        assert_eq!(SessionId::new("any text").unwrap().as_str(), "any text");
    }
}
