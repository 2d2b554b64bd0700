//! The pages of the errors, as they stand under `docs/errors/`.

use oncebox::Code;

/// What a code means, what is safe, and what to do.
pub(crate) fn page(code: Code) -> &'static str {
    match code {
        Code::CommandLine => include_str!("../../../docs/errors/OB0101.md"),
        Code::FileMistakes => include_str!("../../../docs/errors/OB0102.md"),
        Code::FileUnusable => include_str!("../../../docs/errors/OB0103.md"),
        Code::Address => include_str!("../../../docs/errors/OB0104.md"),
        Code::Filter => include_str!("../../../docs/errors/OB0105.md"),
        Code::NotConfirmed => include_str!("../../../docs/errors/OB0106.md"),
        Code::StoreAway => include_str!("../../../docs/errors/OB0201.md"),
        Code::StoreBusy => include_str!("../../../docs/errors/OB0202.md"),
        Code::TransactionLost => include_str!("../../../docs/errors/OB0203.md"),
        Code::Breached => include_str!("../../../docs/errors/OB0204.md"),
        Code::Fenced => include_str!("../../../docs/errors/OB0205.md"),
        Code::Refused => include_str!("../../../docs/errors/OB0206.md"),
        Code::StoreSetting => include_str!("../../../docs/errors/OB0207.md"),
        Code::SchemaOld => include_str!("../../../docs/errors/OB0208.md"),
        Code::SchemaOther => include_str!("../../../docs/errors/OB0209.md"),
        Code::NoPrivilege => include_str!("../../../docs/errors/OB0210.md"),
        Code::Corrupt => include_str!("../../../docs/errors/OB0211.md"),
        Code::CommitUnknown => include_str!("../../../docs/errors/OB0212.md"),
        Code::Setup => include_str!("../../../docs/errors/OB0213.md"),
        Code::SourceAway => include_str!("../../../docs/errors/OB0301.md"),
        Code::SourceSetting => include_str!("../../../docs/errors/OB0302.md"),
        Code::SendStopped => include_str!("../../../docs/errors/OB0303.md"),
        Code::ConsumerStart => include_str!("../../../docs/errors/OB0401.md"),
        Code::ConsumerStopped => include_str!("../../../docs/errors/OB0402.md"),
        Code::MessageDead => include_str!("../../../docs/errors/OB0403.md"),
        Code::MostFail => include_str!("../../../docs/errors/OB0404.md"),
        Code::KeyFull => include_str!("../../../docs/errors/OB0405.md"),
        Code::NotDrained => include_str!("../../../docs/errors/OB0406.md"),
        Code::TaskBroke => include_str!("../../../docs/errors/OB0407.md"),
        Code::NoConsumer => include_str!("../../../docs/errors/OB0501.md"),
        Code::NoParked => include_str!("../../../docs/errors/OB0502.md"),
        Code::NoReplay => include_str!("../../../docs/errors/OB0503.md"),
        Code::ReplayState => include_str!("../../../docs/errors/OB0504.md"),
        Code::NothingToReplay => include_str!("../../../docs/errors/OB0505.md"),
        Code::CannotEdit => include_str!("../../../docs/errors/OB0506.md"),
        Code::NotDead => include_str!("../../../docs/errors/OB0507.md"),
        Code::NothingKnown => include_str!("../../../docs/errors/OB0508.md"),
        Code::SinkAway => include_str!("../../../docs/errors/OB0601.md"),
        Code::RowRefused => include_str!("../../../docs/errors/OB0602.md"),
        Code::SinkSetting => include_str!("../../../docs/errors/OB0603.md"),
        Code::RelayStopped => include_str!("../../../docs/errors/OB0604.md"),
        Code::NoRelay => include_str!("../../../docs/errors/OB0605.md"),
        Code::NoRow => include_str!("../../../docs/errors/OB0606.md"),
        // A code that a newer library has, and this command does not know.
        _ => "There is no page for this code yet.",
    }
}
