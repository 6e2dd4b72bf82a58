#pragma once

/// What the targets with scripted tiers declare about them. `Keys` is a list of keys as the target
/// shows them: numbers, or bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/tiering/file_fault.h"
#include "contract/tiering/tier_files.h"

namespace kvfence {

/// How a call of the file system fails.
enum class FileError : std::uint8_t {
  kNone,  ///< not at all: it moves fewer bytes than it was asked to
  kEACCES,
  kEINTR,
  kEIO,
  kEMFILE,
  kENOENT,
  kENOSPC,
  kEROFS,
};

inline constexpr std::size_t kNumFileErrors = 8;

constexpr auto words_of(FileError) {
  return words({"none", "EACCES", "EINTR", "EIO", "EMFILE", "ENOENT", "ENOSPC", "EROFS"});
}

/// What is done to a block file without the tier's knowledge.
enum class FileDamage : std::uint8_t {
  kFlip,      ///< a bit is another one
  kTruncate,  ///< shorter than it has to be
  kGrow,      ///< longer
  kReplace,   ///< the file of another key
};

inline constexpr std::array<FileDamage, 4> kFileDamages = {FileDamage::kFlip, FileDamage::kTruncate,
                                                           FileDamage::kGrow, FileDamage::kReplace};

constexpr auto words_of(FileDamage) { return words({"flip", "truncate", "grow", "replace"}); }

namespace tiering {

using kvfence::operator==;

/// A command about one tier.
/// Errors: kNotInConfig: no such tier.
struct OfTier {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::uint32_t tier = 0;
  static void declare(auto& fields) {
    fields.add("tier", &OfTier::tier, Domain::kCount, "its place in the order, from 0");
  }
};

struct TierFinish : OfTier {
  static constexpr Verb kVerb{"tier_finish", "a job of a tier is over; it is reported at its poll"};
  std::uint32_t job = 0;
  bool success = true;
  static void declare(auto& fields) {
    using S = TierFinish;
    OfTier::declare(fields);
    fields.add("job", &S::job, Domain::kNumber, "its number");
    fields.optional("success", &S::success, Domain::kFlag, "whether all was moved, or tried to be");
  }
};

/// A FileFault (contract/tiering/file_fault.h).
struct Fault {
  static constexpr std::string_view kWord = "fault";
  FileOperation operation = FileOperation::kWrite;
  std::uint32_t call = 0;
  FileError fails_with = FileError::kNone;
  std::uint32_t num_bytes = 0;
  static void declare(auto& fields) {
    using S = Fault;
    fields.add("operation", &S::operation, Domain::kChoice, "write, read, rename, close ...");
    fields.optional("call", &S::call, Domain::kCount, "which from now on, from 0");
    fields.optional("fails_with", &S::fails_with, Domain::kChoice, "an errno; none: short");
    fields.optional("num_bytes", &S::num_bytes, Domain::kCount, "moved by a short one");
  }
};

/// Errors: kNotInConfig: no such tier, or no file tier; kBadRange: no call of that operation can
/// fail so (a short one that neither reads nor writes; make_folder with ENOENT).
struct TierFaults : OfTier {
  static constexpr Verb kVerb{"tier_faults", "what is to go wrong in a file tier's file system"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  std::vector<Fault> faults;
  static void declare(auto& fields) {
    OfTier::declare(fields);
    fields.add("faults", &TierFaults::faults, Domain::kAnswers, "in place of those planned before");
  }
};

/// Errors: kNotInConfig: no such tier, or no file tier.
struct TierRestart : OfTier {
  static constexpr Verb kVerb{"tier_restart", "a file tier ends and is opened again"};
  bool overtaken = false;
  static void declare(auto& fields) {
    OfTier::declare(fields);
    fields.optional("overtaken", &TierRestart::overtaken, Domain::kFlag,
                    "another process takes number 0 in between");
  }
};

/// Errors: kNotInConfig: no such tier, or no file tier.
struct TierWriter : OfTier {
  static constexpr Verb kVerb{"tier_writer", "another process acts as a writer on a tier's files"};
  std::uint32_t number = 0;
  WriterAct does = WriterAct::kClaims;
  static void declare(auto& fields) {
    OfTier::declare(fields);
    fields.add("number", &TierWriter::number, Domain::kCount, "the writer's");
    fields.add("does", &TierWriter::does, Domain::kChoice, "claims, writes, dies, strays");
  }
};

/// A call on a tier, without its keys.
struct CallParts {
  std::string method;                ///< upstream's name
  std::uint32_t tier = 0;            ///< its place in the order
  std::string request;               ///< empty where the call is about none
  std::optional<std::uint32_t> job;  ///< of submit_store and submit_load
  std::vector<SlotId> slots;         ///< likewise
  std::string answer;                ///< "hit", "miss", "pending"; "request_level", "block_level"
};

/// A TierCall (contract/scripted/scripted_tier.h). The answer of get_finished_jobs is "3 done 5
/// failed".
template <class Keys>
struct CallRecordOf : CallParts {
  static constexpr std::string_view kWord = "call";
  Keys keys;
  static void declare(auto& fields) {
    using S = CallRecordOf;
    fields.add("method", &S::method, "upstream's name");
    fields.add("tier", &S::tier, "of which tier");
    fields.optional("request", &S::request, "its request");
    fields.optional("job", &S::job, "its number");
    fields.optional("keys", &S::keys, "which blocks");
    fields.optional("slots", &S::slots, "of the primary tier");
    fields.optional("answer", &S::answer, "what was answered");
  }
};

/// A job between the primary tier and another one that is under way, or promotions that are queued.
template <class Keys>
struct TransferOf {
  static constexpr std::string_view kWord = "transfer";
  std::optional<std::uint32_t> job;  ///< nothing while it is queued
  std::uint32_t tier = 0;
  bool promotion = false;
  std::string request;
  Keys keys;
  std::vector<SlotId> slots;
  static void declare(auto& fields) {
    using S = TransferOf;
    fields.optional("job", &S::job, "its number, once it is submitted");
    fields.add("tier", &S::tier, "with which tier");
    fields.optional("promotion", &S::promotion, "up, else a cascade");
    fields.add("request", &S::request, "its request");
    fields.add("keys", &S::keys, "which blocks");
    fields.add("slots", &S::slots, "of the primary tier");
  }
};

/// What a tier holds.
template <class Keys>
struct TierStateOf {
  static constexpr std::string_view kWord = "tier";
  Keys held;
  std::vector<std::string> writers = {"0.lock"};
  static void declare(auto& fields) {
    using S = TierStateOf;
    fields.add("held", &S::held, "keys, ascending; of files");
    fields.optional("writers", &S::writers, "of a file tier: locks, temporary files");
  }
};

}  // namespace tiering
}  // namespace kvfence
