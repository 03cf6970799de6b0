use std::sync::Arc;

use super::*;

/// Runs git as the tests want it: nobody's configuration, a fixed author.
fn run(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    let output = command
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .args(["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main"])
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(directory: &Path, message: &str) -> String {
    run(directory, &["commit", "-q", "--allow-empty", "-m", message]);
    run(directory, &["rev-parse", "HEAD"])
}

fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &["init", "-q"]);
    dir
}

async fn found(directory: &Path) -> String {
    project_id(directory.to_owned()).await.to_string()
}

#[tokio::test]
async fn l3_the_project_is_the_root_commit_from_any_directory_of_the_repository() {
    let repository = repository();
    let root = commit(repository.path(), "first");
    commit(repository.path(), "second");
    let below = repository.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    assert_eq!(found(repository.path()).await, root);
    assert_eq!(found(&below).await, root);
}

#[tokio::test]
async fn l3_of_several_root_commits_the_smallest_counts() {
    let repository = repository();
    let mut roots = vec![commit(repository.path(), "one")];
    for name in ["two", "three", "four"] {
        run(repository.path(), &["checkout", "-q", "--orphan", name]);
        roots.push(commit(repository.path(), name));
    }
    roots.sort();
    assert_eq!(found(repository.path()).await, roots[0]);
}

#[tokio::test]
async fn l3_no_repository_no_commit_and_no_directory_are_global() {
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(found(nothing.path()).await, "global");
    assert_eq!(found(&nothing.path().join("missing")).await, "global");
    assert_eq!(found(repository().path()).await, "global");
}

#[tokio::test]
async fn l3_the_boundary_of_a_shallow_clone_is_never_the_project() {
    let origin = repository();
    let root = commit(origin.path(), "one");
    let second = commit(origin.path(), "two");
    let tip = commit(origin.path(), "three");
    let url = format!("file://{}", origin.path().display());
    for (depth, boundary) in [("1", &tip), ("2", &second)] {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), &["clone", "-q", "--depth", depth, &url, "clone"]);
        let clone = dir.path().join("clone");
        let shown = run(&clone, &["rev-list", "--max-parents=0", "--all"]);
        assert_eq!(&shown, boundary, "it looks like a root");
        assert_eq!(found(&clone).await, "global");
        std::fs::create_dir(clone.join("sub")).unwrap();
        assert_eq!(found(&clone.join("sub")).await, "global");
        // A whole clone has the same project as its origin.
        run(&clone, &["fetch", "-q", "--unshallow"]);
        assert_eq!(found(&clone).await, root);
    }
}

#[tokio::test]
async fn l3_what_a_hook_has_set_for_another_repository_is_not_asked() {
    let [ours, other] = [repository(), repository()];
    let root = commit(ours.path(), "ours");
    commit(other.path(), "other");
    // A test cannot set its own process's environment: the child that would be started is looked at.
    let command = command(
        ours.path(),
        &["rev-parse"],
        [
            ("GIT_DIR", other.path().join(".git")),
            ("GIT_WORK_TREE", other.path().into()),
            ("GIT_INDEX_FILE", "i".into()),
        ]
        .map(|(name, value)| (name.into(), value.into())),
    );
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        assert!(command.get_envs().any(|(set, value)| set == name && value.is_none()), "{name}");
    }
    assert_eq!(found(ours.path()).await, root);
}

#[tokio::test]
async fn l3_a_repository_that_git_refuses_is_global() {
    let repository = repository();
    commit(repository.path(), "first");
    // As if it belonged to somebody else.
    let mut refused = command(repository.path(), &["rev-list", "--max-parents=0", "--all"], []);
    refused.env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    assert_eq!(answer(refused), None);
    // As if it were damaged.
    std::fs::write(repository.path().join(".git/HEAD"), "nonsense").unwrap();
    std::fs::remove_dir_all(repository.path().join(".git/objects")).unwrap();
    assert_eq!(found(repository.path()).await, "global");
}

#[tokio::test]
async fn l3_the_project_of_a_directory_is_asked_once() {
    let repository = repository();
    let root = commit(repository.path(), "first");
    let manager =
        crate::SessionManager::new(Arc::new(crate::MemoryStore::new()), crate::ManagerOptions::default());
    assert_eq!(manager.project_of(repository.path()).await.as_str(), root);
    std::fs::remove_dir_all(repository.path().join(".git")).unwrap();
    assert_eq!(manager.project_of(repository.path()).await.as_str(), root);
}
