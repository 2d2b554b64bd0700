//! What a demo looks like: a live picture on a terminal, plain lines elsewhere. On stderr; stdout is for the verdict.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::fleet::Tally;
use super::shop::Shop;
use super::{Args, FRAME};
use crate::number::grouped;

/// The live picture.
pub(super) struct Picture {
    title: String,
    messages: u64,
    live: bool,
    /// Effects at each of the last frames.
    history: VecDeque<u64>,
    /// Lines that are on the screen now, to be drawn over.
    drawn: usize,
    said: Duration,
}

const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Frames that the sparkline looks back on.
const HISTORY: usize = 40;

/// Frames over which the shown rate is taken.
const RATE_FRAMES: usize = 8;

impl Picture {
    pub(super) fn new(args: &Args, shop: &Shop, seed: u64) -> Self {
        let title = format!("oncebox demo · {} · {} workers · seed {seed}", shop.kind(), args.workers);
        let live = std::io::stderr().is_terminal() && !args.json;
        let mut picture = Self {
            title,
            messages: args.messages.into(),
            live,
            history: VecDeque::new(),
            drawn: 0,
            said: Duration::ZERO,
        };
        if live {
            // Hide the cursor while lines are drawn over.
            picture.write("\u{1b}[?25l");
        } else {
            let line = format!("{}\n", picture.title);
            picture.write(&line);
        }
        picture
    }

    pub(super) fn draw(&mut self, tally: &Tally, effects: u64, elapsed: Duration) {
        self.history.push_back(effects);
        if self.history.len() > HISTORY + 1 {
            self.history.pop_front();
        }
        if self.live {
            let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
            let lines = self.lines(tally, effects, elapsed);
            let up = if self.drawn > 0 { format!("\u{1b}[{}A", self.drawn) } else { String::new() };
            let body: String = lines.iter().map(|line| format!("\u{1b}[2K{}\n", cut(line, width))).collect();
            self.drawn = lines.len();
            self.write(&format!("{up}{body}"));
        } else if elapsed >= self.said + Duration::from_secs(2) {
            self.said = elapsed;
            let line = format!(
                "{:>3} s · {} effects · {} deliveries · {} crashes\n",
                elapsed.as_secs(),
                grouped(effects),
                grouped(tally.deliveries),
                grouped(tally.crashes)
            );
            self.write(&line);
        }
    }

    /// Gives the terminal back.
    pub(super) fn end(&mut self) {
        if self.live {
            self.write("\u{1b}[?25h\n");
            self.live = false;
        }
    }

    fn lines(&self, tally: &Tally, effects: u64, elapsed: Duration) -> Vec<String> {
        let done = effects.min(self.messages);
        let bar = bar(done, self.messages, 32);
        let last = tally.last.as_deref().map_or(String::new(), |at| format!("last one killed at: {at}"));
        vec![
            String::new(),
            format!("  {}", self.title),
            String::new(),
            format!("  effects     {bar}  {} of {} messages", grouped(effects), grouped(self.messages)),
            format!("  rate        {:<40}  {}/s", self.sparkline(), grouped(self.rate())),
            format!("  deliveries  {}", grouped(tally.deliveries)),
            format!("  duplicates  {}", grouped(tally.deliveries.saturating_sub(done))),
            format!("  crashes     {:<10} {last}", grouped(tally.crashes)),
            format!("  time        {} s", elapsed.as_secs()),
        ]
    }

    fn steps(&self) -> Vec<u64> {
        let history: Vec<u64> = self.history.iter().copied().collect();
        history.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
    }

    fn sparkline(&self) -> String {
        let steps = self.steps();
        let max = steps.iter().copied().max().unwrap_or(0).max(1);
        steps.iter().map(|step| SPARKS[(step * (SPARKS.len() as u64 - 1) / max) as usize]).collect()
    }

    fn rate(&self) -> u64 {
        let steps = self.steps();
        let recent = &steps[steps.len().saturating_sub(RATE_FRAMES)..];
        if recent.is_empty() {
            return 0;
        }
        (recent.iter().sum::<u64>() as f64 / (FRAME.as_secs_f64() * recent.len() as f64)) as u64
    }

    fn write(&mut self, text: &str) {
        let mut out = std::io::stderr().lock();
        // A picture that can't be drawn is no reason to stop.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(done: u64, all: u64, width: u64) -> String {
    let full = done * width / all.max(1);
    (0..width).map(|cell| if cell < full { '█' } else { '░' }).collect()
}

fn cut(line: &str, width: usize) -> String {
    line.chars().take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_filled() {
        assert_eq!(bar(5, 10, 4), "██░░");
        assert_eq!(bar(0, 0, 2), "░░");
    }
}
