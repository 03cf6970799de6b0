//! Reads what `offspring export --format otlp` wrote with the published types of OTLP, as a collector's client would.
//! `tests/tests/cli_export.rs` sees to it that the program still writes this file.

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{
        collector::trace::v1::ExportTraceServiceRequest,
        common::v1::any_value::Value,
        trace::v1::{Span, span::SpanKind, status::StatusCode},
    };

    const WRITTEN: &str = include_str!("../../../fixtures/exports/1.otlp.json");

    fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
        span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
    }

    #[test]
    fn the_published_types_read_all_of_it() {
        let read: ExportTraceServiceRequest = serde_json::from_str(WRITTEN).unwrap();
        let [resource] = read.resource_spans.as_slice() else { panic!("{read:?}") };
        let [scope] = resource.scope_spans.as_slice() else { panic!("{resource:?}") };
        let service = &resource.resource.as_ref().unwrap().attributes[0];
        assert_eq!(service.key, "service.name");
        assert_eq!(scope.scope.as_ref().unwrap().name, "offspring");
        let spans = &scope.spans;
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "invoke_agent coordinator",
                "invoke_agent coordinator",
                "invoke_agent history",
                "invoke_agent reviewer \"é\" <b>",
                "invoke_agent leaf",
                "invoke_agent again"
            ]
        );
        for span in spans {
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            assert_eq!(span.trace_id, spans[0].trace_id);
            assert_eq!(span.kind(), SpanKind::Internal);
            assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
            assert!(matches!(attribute(span, "offspring.run.ordinal"), Some(Value::IntValue(1 | 2))));
        }
        // The second run of the root is the parent of what began in it.
        let parents: Vec<Option<usize>> = spans
            .iter()
            .map(|span| spans.iter().position(|other| other.span_id == span.parent_span_id))
            .collect();
        assert_eq!(parents, [None, None, Some(0), Some(0), Some(3), Some(1)]);
        let codes: Vec<StatusCode> = spans.iter().map(|span| span.status.as_ref().unwrap().code()).collect();
        let (ok, error) = (StatusCode::Ok, StatusCode::Error);
        assert_eq!(codes, [ok, ok, ok, error, error, error]);
        let tokens = attribute(&spans[3], "gen_ai.usage.input_tokens");
        assert!(matches!(tokens, Some(Value::IntValue(1200))), "{tokens:?}");
    }

    #[test]
    fn written_again_by_the_published_types_it_says_the_same() {
        // A key that they do not know would be lost.
        let read: ExportTraceServiceRequest = serde_json::from_str(WRITTEN).unwrap();
        let again = serde_json::to_value(read).unwrap();
        let first: serde_json::Value = serde_json::from_str(WRITTEN).unwrap();
        assert!(holds(&again, &first), "{again:#}");
    }

    /// Whether everything of `first` is in `again`, which may say more.
    fn holds(again: &serde_json::Value, first: &serde_json::Value) -> bool {
        use serde_json::Value::{Array, Object};
        match (again, first) {
            (Object(again), Object(first)) => {
                first.iter().all(|(key, value)| again.get(key).is_some_and(|found| holds(found, value)))
            }
            (Array(again), Array(first)) => {
                again.len() == first.len()
                    && again.iter().zip(first).all(|(again, first)| holds(again, first))
            }
            (again, first) => again == first,
        }
    }
}
