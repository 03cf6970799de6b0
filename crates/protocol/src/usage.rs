//! Tokens and cost of provider messages (rule L15).

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// What one provider message cost, or a sum of such. Sums saturate; they never wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens the model read.
    pub input_tokens: u64,
    /// Tokens the model wrote, reasoning included.
    pub output_tokens: u64,
    /// Of the input tokens, those served from a cache.
    pub cached_tokens: u64,
    /// Cost in millionths of a US dollar; `None` when the price is unknown, which is never zero.
    pub cost_micro_usd: Option<u64>,
    /// How many provider messages the sum holds.
    pub messages: u64,
}

impl Usage {
    /// Input and output tokens together.
    #[must_use]
    pub const fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// One provider message with these tokens and an unknown price.
    #[must_use]
    pub const fn message(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cached_tokens: 0, cost_micro_usd: None, messages: 1 }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // A sum is known only when all its parts are: an unknown price must not look like a free one.
        let known = match (self.messages, other.messages) {
            (0, _) => other.cost_micro_usd,
            (_, 0) => self.cost_micro_usd,
            _ => self.cost_micro_usd.zip(other.cost_micro_usd).map(|(a, b)| a.saturating_add(b)),
        };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cost_micro_usd = known;
        self.messages = self.messages.saturating_add(other.messages);
    }
}

impl Add for Usage {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_price_makes_the_sum_unknown_and_an_empty_sum_does_not() {
        let priced = Usage { cost_micro_usd: Some(5), ..Usage::message(1, 2) };
        assert_eq!((Usage::default() + priced).cost_micro_usd, Some(5));
        assert_eq!((priced + priced).cost_micro_usd, Some(10));
        assert_eq!((priced + Usage::message(1, 1)).cost_micro_usd, None);
        assert_eq!((priced + Usage::default()).cost_micro_usd, Some(5));
    }
}
