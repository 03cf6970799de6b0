//! What every store must do, as tests that anybody can run on theirs.
//!
//! [`store_contract!`](crate::store_contract) makes one test of each rule; [`run_all`] runs them all in one
//! go. Both ask for a fresh, empty store per rule as a [`Fixture`]. The guide *write a store* shows how.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test suite fails by panicking")]

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc};

use crate::store::SessionStore;

mod logs;
mod origins;
mod plant;
mod reads;
mod rows;
mod sharing;
mod trees;

/// A fresh, empty store, and what must live as long as it.
pub struct Fixture {
    /// The store that is tried.
    pub store: Arc<dyn SessionStore>,
    /// The same data opened a second time, as another process would; `None` where that cannot be.
    pub other: Option<Arc<dyn SessionStore>>,
    _keep: Box<dyn Any + Send>,
}

impl Fixture {
    /// A store that nobody else can open.
    pub fn new(store: impl SessionStore) -> Self {
        Self { store: Arc::new(store), other: None, _keep: Box::new(()) }
    }

    /// Adds a second opening of the same data.
    #[must_use]
    pub fn with_other(mut self, other: impl SessionStore) -> Self {
        self.other = Some(Arc::new(other));
        self
    }

    /// Keeps something until the store is gone: the temporary directory it is in, for example.
    #[must_use]
    pub fn keeping(mut self, keep: impl Any + Send) -> Self {
        self._keep = Box::new(keep);
        self
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("store", &self.store.info()).finish_non_exhaustive()
    }
}

/// A running rule.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One rule of the suite. It panics when the store breaks it.
#[derive(Clone, Copy)]
pub struct Case {
    /// Says what must hold, with the number of the rule where it keeps one.
    pub name: &'static str,
    run: fn(Fixture) -> Running,
}

impl Case {
    /// Tries the rule on this store, which must be empty and be used for nothing else.
    #[must_use]
    pub fn run(&self, fixture: Fixture) -> Running {
        (self.run)(fixture)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The names of all rules, handed to another macro: one list for [`CASES`] and for the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __contract_names {
    ($then:ident $($with:tt)*) => {
        $crate::$then! {
            [
                rows::t1_ids_are_compared_by_bytes
                rows::t1_ids_of_512_bytes_are_stored
                rows::t1_longer_ids_and_nul_are_refused
                rows::every_field_of_a_row_survives
                rows::l7_unknown_words_survive
                rows::an_update_changes_all_but_id_parent_root_and_depth
                rows::a_taken_id_names_its_owner_and_changes_nothing
                rows::l12_runs_keep_their_order_and_are_changed_by_id
                rows::l15_every_field_of_a_run_survives
                rows::l12_a_session_is_running_while_its_last_run_is_open
                rows::a_batch_is_all_or_nothing
                rows::what_is_not_stored_is_unknown
                rows::writes_see_the_writes_before_them
                logs::l16_only_the_next_number_is_accepted
                logs::l16_numbers_can_stay_without_a_line
                logs::l16_each_tree_counts_for_itself
                logs::events_are_read_from_a_cursor_with_a_limit_and_for_a_session
                logs::events_keep_every_field
                logs::a_page_ends_after_so_many_bytes_and_loses_nothing
                logs::unknown_kinds_and_their_data_survive_byte_for_byte
                logs::l12_late_events_stay_marked
                logs::l18_a_reader_with_a_cursor_misses_nothing_and_sees_nothing_twice
                trees::l3_a_root_keeps_a_parent_that_is_not_stored
                trees::l3_a_child_needs_a_parent_of_its_own_tree
                trees::children_come_in_the_order_they_were_created
                trees::a_subtree_has_parents_before_children_and_siblings_in_order
                trees::roots_come_newest_first
                trees::a_prefix_finds_at_most_20_roots_first
                trees::t1_a_prefix_is_no_pattern
                trees::open_trees_are_those_with_a_run_that_has_not_ended
                trees::deleting_a_session_takes_everything_below_with_it
                trees::deleting_a_root_takes_the_tree_and_frees_its_ids
                origins::every_field_of_an_origin_survives
                origins::a_root_and_its_origin_are_one_batch
                origins::an_origin_is_that_of_a_root_of_the_own_tree
                origins::an_origin_goes_with_its_tree
                origins::a_root_says_which_one_it_repeats_in_every_query
                reads::an_empty_store_finds_nothing
                sharing::l13_an_old_fence_writes_nothing
                sharing::a_claim_with_an_old_epoch_is_refused
                sharing::a_fence_is_for_its_own_tree_only
                sharing::everything_but_commands_needs_a_fence
                sharing::commands_are_open_until_they_have_an_answer
                sharing::commands_go_with_their_session
                sharing::a_bad_batch_among_many_fails_alone
                sharing::l16_many_writers_of_many_trees_keep_every_order
                sharing::commits_are_changes
                sharing::l18_commits_of_another_process_are_changes_too
                sharing::another_process_reads_what_was_committed
                sharing::one_of_two_processes_gets_an_id
                sharing::l13_an_owner_is_alive_until_it_closes
                sharing::a_closed_store_refuses_everything
                sharing::both_durabilities_are_taken
            ]
            $($with)*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __contract_list {
    ([$($module:ident::$name:ident)*]) => {
        /// Every rule.
        pub const CASES: &[Case] = &[
            $(Case { name: stringify!($name), run: |fixture| Box::pin($module::$name(fixture)) },)*
        ];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __contract_tests {
    ([$($module:ident::$name:ident)*] $factory:expr) => {
        $(
            #[test]
            fn $name() {
                $crate::contract::run(stringify!($name), $factory);
            }
        )*
    };
}

/// Makes a `#[test]` of every rule. Takes a closure that gives a future of a fresh [`Fixture`].
///
/// ```
/// use offspring_sessions::{MemoryStore, contract::Fixture};
///
/// offspring_sessions::store_contract!(|| async { Fixture::new(MemoryStore::new()) });
/// ```
#[macro_export]
macro_rules! store_contract {
    ($factory:expr) => {
        $crate::__contract_names! { __contract_tests $factory }
    };
}

crate::__contract_names! { __contract_list }

/// Runs one rule on a fresh store, in a runtime of its own.
///
/// # Panics
/// When the store breaks the rule, or there is no rule of that name.
pub fn run<F: Future<Output = Fixture>>(name: &str, factory: impl FnOnce() -> F) {
    let Some(case) = CASES.iter().find(|case| case.name == name) else { panic!("there is no rule {name}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { case.run(factory().await).await });
}

/// Runs every rule, each on a fresh store.
///
/// # Panics
/// When the store breaks one; the message before names it.
pub async fn run_all<F: Future<Output = Fixture>>(factory: impl Fn() -> F) {
    for case in CASES {
        tracing::info!(case.name, "contract");
        case.run(factory().await).await;
    }
}
