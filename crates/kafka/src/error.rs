//! From librdkafka's errors to what a caller can do about them.

use oncebox_core::SourceErrorKind;
use oncebox_core::sink::SinkErrorKind;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Why, in words without payload or secrets: `KafkaError` prints the values of settings.
pub(crate) fn reason(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, _, name, _) => {
            format!("librdkafka does not take the value of the setting {name}; correct it")
        }
        KafkaError::ClientCreation(_) => {
            "librdkafka could not be started with these settings; see its log at the level debug".to_owned()
        }
        error => match code(error) {
            Some(code) => format!("{code}{}", advice(code)),
            None => "librdkafka gave no code for what went wrong".to_owned(),
        },
    }
}

/// The same for what reading ended with.
pub(crate) fn read_reason(error: &KafkaError) -> String {
    use RDKafkaErrorCode as Code;
    let advice = match code(error) {
        Some(Code::NotImplemented | Code::UnsupportedCompressionType | Code::BadCompression) => {
            "; the next records are compressed or written in a way that this build does not read: let their producer write \
             them otherwise, or build with that codec"
        }
        Some(Code::BadMessage | Code::InvalidMessage | Code::InvalidRecord) => {
            "; the next records are damaged, and nothing is skipped: restore them, or set the group's offset behind them with \
             Kafka's tools"
        }
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
            "; the next record is larger than receive.message.max.bytes allows: raise that setting"
        }
        _ => "",
    };
    format!("{}{advice}", reason(error))
}

/// What a person can do, where the code alone does not say.
fn advice(code: RDKafkaErrorCode) -> &'static str {
    use RDKafkaErrorCode as Code;
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::IllegalSASLState => {
            "; check security.protocol, the mechanism, the user name and the password, here and at the brokers"
        }
        Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            "; give this user that right at the brokers"
        }
        _ => "",
    }
}

/// The code of an error. The client knows none of what it asks as an administrator, though it holds one.
fn code(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// What a consumer can do about it.
pub(crate) fn source_kind(error: &KafkaError) -> SourceErrorKind {
    use RDKafkaErrorCode as Code;
    match error {
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => SourceErrorKind::Configuration,
        error => match code(error) {
            Some(
                Code::AutoOffsetReset
                | Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::Authentication
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState
                // It tries the same records again for ever, and says so to nobody but its log; or it skips them.
                | Code::NotImplemented
                | Code::UnsupportedFeature
                | Code::UnsupportedVersion
                | Code::UnsupportedForMessageFormat
                | Code::UnsupportedCompressionType
                | Code::BadCompression
                | Code::BadMessage
                | Code::InvalidMessage
                | Code::InvalidRecord
                | Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::LogTruncation
                | Code::FencedInstanceId
                | Code::InconsistentGroupProtocol
                | Code::InvalidGroupId
                | Code::InvalidSessionTimeout
                | Code::InvalidTopic,
            ) => SourceErrorKind::Configuration,
            _ => SourceErrorKind::Unavailable,
        },
    }
}

/// What a relay can do about it.
pub(crate) fn sink_kind(error: &KafkaError) -> SinkErrorKind {
    use RDKafkaErrorCode as Code;
    match error {
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => SinkErrorKind::Configuration,
        // The record itself holds a zero byte where C reads a name.
        KafkaError::Nul(_) => SinkErrorKind::Refused,
        error => match code(error) {
            Some(
                Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::InvalidRecord | Code::InvalidTimestamp,
            ) => SinkErrorKind::Refused,
            Some(
                Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::InvalidTopic
                | Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::Authentication
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState
                | Code::UnsupportedCompressionType
                | Code::UnsupportedVersion
                | Code::UnsupportedForMessageFormat
                | Code::PolicyViolation,
            ) => SinkErrorKind::Configuration,
            // Everything else passes, or is not known to be final: publish it again.
            _ => SinkErrorKind::Unavailable,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_value_is_never_told() {
        let mut client = rdkafka::ClientConfig::new();
        client.set("statistics.interval.ms", "CANARY");
        let error = client.create::<rdkafka::consumer::BaseConsumer>().err().unwrap();
        assert!(!reason(&error).contains("CANARY") && reason(&error).contains("statistics.interval.ms"));
        assert_eq!(source_kind(&error), SourceErrorKind::Configuration);
    }

    #[test]
    fn what_an_administrator_is_told_has_a_reason() {
        let timed_out = KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut);
        assert_eq!(reason(&timed_out), RDKafkaErrorCode::OperationTimedOut.to_string());
        let refused = KafkaError::AdminOp(RDKafkaErrorCode::TopicAuthorizationFailed);
        assert_eq!(source_kind(&refused), SourceErrorKind::Configuration);
    }

    #[test]
    fn what_never_gets_better_is_for_a_person() {
        use RDKafkaErrorCode as Code;
        for code in [Code::UnsupportedCompressionType, Code::NotImplemented, Code::BadMessage, Code::Authentication] {
            let error = KafkaError::MessageConsumption(code);
            assert_eq!(source_kind(&error), SourceErrorKind::Configuration, "{code}");
            assert!(read_reason(&error).contains(';'), "{code}: what to do about it");
        }
        for code in [Code::BrokerTransportFailure, Code::NotLeaderForPartition, Code::RebalanceInProgress] {
            assert_eq!(source_kind(&KafkaError::MessageConsumption(code)), SourceErrorKind::Unavailable, "{code}");
        }
    }

    #[test]
    fn what_may_be_stored_is_published_again() {
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        assert_eq!(sink_kind(&timed_out), SinkErrorKind::Unavailable);
        let large = KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);
        assert_eq!(sink_kind(&large), SinkErrorKind::Refused);
    }
}
