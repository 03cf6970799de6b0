//! From a program's name to a file that can be executed, before anything is started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Why a program cannot be started; found out before any process exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No such file, or a name that no directory of `PATH` holds.
    #[error("program {} not found ({looked_in})", .program.display())]
    NotFound {
        /// The name as it was given.
        program: OsString,
        /// Where it was looked for, as a half sentence.
        looked_in: String,
    },
    /// A file without execute permission.
    #[error("{} is not executable; try: chmod +x {}", .path.display(), .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// A directory where a program was expected.
    #[error("{} is a directory, not a program", .path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
}

/// What stands at a path.
enum Found {
    Program,
    Nothing,
    NotExecutable,
    Directory,
}

/// Resolves a program's name to an absolute path, before any process exists.
///
/// A name with a `/` is a path, relative to `base_dir` (for a manifest: its directory). Any other name is looked for
/// in the directories of `path`, which is the `PATH` of the child's *explicit* environment and not ours; a relative
/// or empty entry there is skipped, so that nothing is run from a directory nobody named. `base_dir` should be
/// absolute.
///
/// # Errors
/// [`ProgramError`]: nothing there, no execute permission, or a directory.
pub fn resolve_program(
    program: &OsStr,
    base_dir: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf, ProgramError> {
    if program.as_encoded_bytes().contains(&b'/') {
        let path = base_dir.join(program);
        return match look_at(&path) {
            Found::Program => Ok(path),
            Found::NotExecutable => Err(ProgramError::NotExecutable { path }),
            Found::Directory => Err(ProgramError::IsDirectory { path }),
            Found::Nothing => Err(ProgramError::NotFound {
                program: program.to_owned(),
                looked_in: format!("there is no file {}", path.display()),
            }),
        };
    }
    let not_found = |looked_in: String| ProgramError::NotFound { program: program.to_owned(), looked_in };
    if program.is_empty() {
        return Err(not_found("the name is empty".to_owned()));
    }
    let Some(directories) = path else {
        return Err(not_found("its environment has no PATH".to_owned()));
    };
    // As a shell does: a file one may not run is only reported when no other directory has one that runs.
    let mut refused = None;
    for directory in std::env::split_paths(directories).filter(|directory| directory.is_absolute()) {
        let path = directory.join(program);
        match look_at(&path) {
            Found::Program => return Ok(path),
            Found::NotExecutable => {
                refused.get_or_insert(ProgramError::NotExecutable { path });
            }
            Found::Nothing | Found::Directory => {}
        }
    }
    Err(refused.unwrap_or_else(|| not_found(format!("PATH is {}", directories.display()))))
}

fn look_at(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Err(_) => Found::Nothing,
        Ok(data) if data.is_dir() => Found::Directory,
        Ok(_) if crate::os::may_execute(path) => Found::Program,
        Ok(_) => Found::NotExecutable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn w10_a_program_is_found_in_the_explicit_path_or_its_absence_says_where_one_looked() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir_all(&a).unwrap();
        std::fs::create_dir_all(b.join("folder")).unwrap();
        file(&a.join("tool"), 0o644);
        file(&b.join("tool"), 0o755);
        file(&a.join("text"), 0o644);
        let path = std::env::join_paths([&a, &b]).unwrap();
        let find = |name: &str| resolve_program(name.as_ref(), &b, Some(&path));

        assert_eq!(find("tool").unwrap(), b.join("tool"));
        assert_eq!(find("./tool").unwrap(), b.join("./tool"));
        assert_eq!(find("text"), Err(ProgramError::NotExecutable { path: a.join("text") }));
        assert_eq!(find("./folder"), Err(ProgramError::IsDirectory { path: b.join("./folder") }));
        assert!(find("folder").unwrap_err().to_string().contains("PATH is "));
        assert!(find("./none").unwrap_err().to_string().contains("there is no file"));
        assert!(resolve_program("sh".as_ref(), &b, None).unwrap_err().to_string().contains("no PATH"));
        // A relative entry names a directory of whoever looks; it is not looked into.
        assert!(resolve_program("tool".as_ref(), &b, Some("b:.:".as_ref())).is_err());
    }
}
