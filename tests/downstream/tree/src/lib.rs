//! Uses `offspring-tree` alone, as a stranger's program would: draws a tree from pairs of parent and child.

use offspring_protocol::{BadId, SessionId};
use offspring_tree::SessionTree;
use offspring_tree::session_tree::InsertError;

/// Why no tree could be drawn.
#[derive(Debug)]
pub enum DrawError {
    /// A name that is no session id.
    Name(BadId),
    /// A start that no tree can hold.
    Start(InsertError),
}

/// One line per session, indented by its depth, parents before their children.
pub fn draw(root: &str, starts: &[(&str, &str)]) -> Result<String, DrawError> {
    let id = |name: &str| SessionId::new(name).map_err(DrawError::Name);
    let mut tree = SessionTree::default();
    tree.insert(id(root)?, None).map_err(DrawError::Start)?;
    for (parent, child) in starts {
        tree.insert(id(child)?, Some(&id(parent)?)).map_err(DrawError::Start)?;
    }
    let mut picture = String::new();
    let mut open = vec![id(root)?];
    while let Some(session) = open.pop() {
        for _ in 0..tree.depth(&session).unwrap_or_default() {
            picture.push_str("  ");
        }
        picture.push_str(session.as_str());
        picture.push('\n');
        let mut children: Vec<SessionId> = tree.children(&session).cloned().collect();
        children.reverse();
        open.extend(children);
    }
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use offspring_tree::{Notification, Router};

    use super::*;

    #[test]
    fn a_tree_is_drawn() {
        let picture = draw("lead", &[("lead", "a"), ("a", "b"), ("lead", "c")]).unwrap();
        assert_eq!(picture, "lead\n  a\n    b\n  c\n");
        assert!(draw("", &[]).is_err());
    }

    #[test]
    fn notifications_are_routed() {
        let mut router = Router::default();
        let lead = router.subscribe(&SessionId::new("lead").unwrap());
        assert_eq!(router.route(Notification::Started { parent: "lead", child: "a" }).matched(), [lead]);
        assert_eq!(router.route(Notification::Session { session: "a" }).matched(), [lead]);
        assert!(router.route(Notification::Session { session: "stranger" }).is_unmatched());
    }
}
