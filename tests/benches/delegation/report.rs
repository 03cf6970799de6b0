//! What was measured, beside its goal.

use std::process::ExitCode;

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// For orientation only.
    None,
}

/// Prints figures as they come and keeps what did not hold.
#[derive(Debug, Default)]
pub(crate) struct Report {
    failures: Vec<String>,
    missed: Vec<String>,
    figures: usize,
    checks: usize,
}

impl Report {
    /// The beginning of a group of figures.
    #[expect(clippy::unused_self, reason = "reads as what it is at every caller")]
    pub(crate) fn title(&self, title: &str) {
        println!("\n{title}");
    }

    /// A figure with its repetitions: median, smallest, greatest. Never fails the run.
    pub(crate) fn figure(&mut self, name: &str, samples: &[f64], unit: &str, goal: Goal) {
        let Some(Spread { median, min, max }) = Spread::of(samples) else { return };
        let measured = format!("{} {unit}", number(median));
        let spread = if samples.len() > 1 {
            format!("({} – {}, n={})", number(min), number(max), samples.len())
        } else {
            String::new()
        };
        let judged = match goal {
            Goal::AtLeast(goal) => Some(("≥", goal, median >= goal)),
            Goal::AtMost(goal) => Some(("≤", goal, median <= goal)),
            Goal::None => None,
        };
        let judged = judged.map_or(String::new(), |(sign, goal, met)| {
            self.figures += 1;
            if !met {
                self.missed.push(name.to_owned());
            }
            let word = if met { "met" } else { "MISSED" };
            format!("goal {sign} {}, measured/goal {:.2}, {word}", number(goal), median / goal)
        });
        println!("{}", format!("  {name:<44} {measured:<28} {spread:<30} {judged}").trim_end());
    }

    /// A line for the reader.
    #[expect(clippy::unused_self, reason = "reads as what it is at every caller")]
    pub(crate) fn note(&self, note: &str) {
        println!("  {note}");
    }

    /// Something that can be counted: fails the run when it does not hold.
    pub(crate) fn check(&mut self, name: &str, holds: Result<(), String>) {
        self.checks += 1;
        if let Err(why) = holds {
            println!("  FAILED {name}: {why}");
            self.failures.push(name.to_owned());
        }
    }

    /// The last lines, and whether everything that can be counted held.
    pub(crate) fn finish(self) -> ExitCode {
        let Self { failures, missed, figures, checks } = self;
        println!(
            "\n{} of {figures} goals met, {} of {checks} checks held",
            figures - missed.len(),
            checks - failures.len()
        );
        if !missed.is_empty() {
            println!("missed: {}", missed.join("; "));
        }
        if failures.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("FAILED: {}", failures.join("; "));
        ExitCode::FAILURE
    }
}

/// For counts: whether the median is within the bound.
pub(crate) fn at_most(bound: f64, samples: &[f64]) -> Result<(), String> {
    match Spread::of(samples) {
        Some(Spread { median, .. }) if median <= bound => Ok(()),
        _ => Err(format!("the median of {samples:.2?} is not within {bound}")),
    }
}

struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { median: *sorted.get(sorted.len() / 2)?, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// The sample below which this share of all lies.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a length is a place in it"
    )]
    let place = (samples.len() as f64 * share).ceil() as usize;
    samples.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn count(count: u64) -> f64 {
    count as f64
}

fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
