//! JSON-RPC 2.0 messages, classified once from borrowed bytes.
