#pragma once

/// A transport whose progress, faults and clock are commands: the world between the two engines of
/// a pair in scenarios and campaigns.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/disaggregated/transport.h"
#include "contract/core/declare.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/transfer_progress.h"

namespace kvfence {

/// Carries the bytes of reads, for engines with bytes.
class ReadCarrier {
 public:
  /// From now on, and until its end, the blocks may be read and written at any time.
  virtual void begin(ReadId read, const ReadSpec& spec) = 0;
  /// Everything was read, or an unknown part.
  virtual void end(ReadId read, bool success) = 0;
  /// The consumer's rank knows that the read is over.
  virtual void reader_knows(ReadId read) = 0;
  /// The producer's rank knows that all reads of the request that have ended are over.
  virtual void owner_knows(std::uint32_t remote_rank, const std::string& remote_request) = 0;

 protected:
  ~ReadCarrier() = default;
};

/// A read that a rank of the consumer started, and whose end was not reported to it.
struct ReadState : ReadSpec {
  static constexpr std::string_view kWord = "read";
  ReadId read = 0;
  TransferProgress progress = TransferProgress::kSubmitted;
  static void declare(auto& fields) {
    using S = ReadState;
    fields.add("read", &S::read, "its number");
    fields.optional("rank", &S::rank, "the consumer's");
    fields.optional("remote_rank", &S::remote_rank, "the producer's");
    fields.add("request", &S::request, "its request");
    fields.add("remote_request", &S::remote_request, "the producer's request");
    fields.add("local_blocks", &S::local_blocks, "into");
    fields.add("remote_blocks", &S::remote_blocks, "from, one by one");
    fields.add("progress", &S::progress, "its progress");
  }
  bool is_under_way() const { return kvfence::is_under_way(progress); }
  void add_to(StateHash& hash) const {
    hash.add_all(static_cast<const ReadSpec&>(*this), read, progress);
  }
};

/// A notice that the producer's rank has not seen.
struct NoticeState : Notice {
  static constexpr std::string_view kWord = "notice";
  NoticeId notice = 0;
  bool delivered = false;
  static void declare(auto& fields) {
    using S = NoticeState;
    fields.add("notice", &S::notice, "its number");
    fields.optional("rank", &S::rank, "the consumer's");
    fields.optional("remote_rank", &S::remote_rank, "the producer's");
    fields.optional("heartbeat", &S::is_heartbeat, "renews leases");
    fields.add("requests", &S::requests, "the producer's");
    fields.optional("delivered", &S::delivered, "waits until the rank looks");
  }
  void add_to(StateHash& hash) const {
    hash.add_all(static_cast<const Notice&>(*this), notice, delivered);
  }
};

class ScriptedTransport final : public Transport {
 public:
  /// carrier: null, or outlives it.
  explicit ScriptedTransport(ReadCarrier* carrier = nullptr) : carrier_(carrier) {}

  Seconds now() const override { return now_; }
  void listen(std::uint32_t remote_rank) override { listening_.insert(remote_rank); }
  ReadId read(const ReadSpec& spec) override;
  void get_finished_reads(std::uint32_t rank, std::vector<ReadResult>& out) override;
  void send_notice(const Notice& notice) override;
  void get_new_notices(std::uint32_t remote_rank, std::vector<Notice>& out) override;
  void close(std::uint32_t remote_rank, const std::string& remote_request) override;

  /// False if that is beyond kSecondsMax: then nothing happens.
  bool advance_clock(Seconds seconds);

  /// False if no read of that number is under way. Else sets its progress.
  /// Requires: kPart, kFinished or kFailed.
  bool advance(ReadId read, TransferProgress progress);

  /// False if no notice of that number is under way. Else it no longer is.
  bool deliver(NoticeId notice);
  bool lose(NoticeId notice);

  /// False if no notice of that number was delivered, seen or not. Else it is under way once more,
  /// under a new number.
  bool repeat(NoticeId notice);

  /// In the order of submission; those that were reported to a rank are gone.
  const std::vector<ReadState>& reads() const { return reads_; }

  /// In the order of sending; those that were lost or seen are gone.
  const std::vector<NoticeState>& notices() const { return notices_; }

  void add_to(StateHash& hash) const {
    hash.add_all(now_, listening_, num_reads_, num_notices_, reads_, ended_, notices_, delivered_,
                 seen_, closed_);
  }

 private:
  void end(ReadState& read, bool success);

  ReadCarrier* carrier_;
  Seconds now_ = 0;
  std::set<std::uint32_t> listening_;  ///< the producer's ranks
  ReadId num_reads_ = 0;
  NoticeId num_notices_ = 0;
  std::vector<ReadState> reads_;
  std::vector<ReadId> ended_;  ///< not reported to ranks yet; in the order of the ends
  std::vector<NoticeState> notices_;
  std::vector<NoticeId> delivered_;  ///< ranks have not looked yet; in the order of delivery
  std::vector<NoticeState> seen_;    ///< in the order in which ranks looked
  std::set<std::pair<std::uint32_t, std::string>> closed_;
};

}  // namespace kvfence
