//! The rules that the session manager keeps, on every store.

#[cfg(test)]
mod cancel;
#[cfg(test)]
mod children;
#[cfg(test)]
mod ensure;
#[cfg(test)]
mod following;
#[cfg(test)]
mod import;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod log;
#[cfg(test)]
mod origin;
#[cfg(test)]
mod peers;
#[cfg(all(test, feature = "postgres"))]
#[path = "../postgres/place.rs"]
mod place;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod world;
