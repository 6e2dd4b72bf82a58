#pragma once

/// A model of what a file tier may report and hold, given what was stored there and which faults
/// were injected into its files. Before the first fault or damage, each job on existing files
/// succeeds and each file is found. After it, the model accepts the observed outcome of a job, if
/// that is possible.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "contract/tiering/tiering_target.h"

namespace kvfence::tiering {

/// A value: copyable.
class FileTierModel {
 public:
  /// Applies what another process or the script does with files. Commands that are not about files
  /// change nothing. Requires: the command was accepted and is about this tier.
  void take_in(const Command& command);

  /// A job is carried out now. shown: the tier after it; null if it is not shown.
  void finish(const Transfer& job, bool success, const TierState* shown);

  /// The tier reports a job. False: it cannot have ended so.
  bool report(std::uint32_t job, bool success);

  /// Whether a lookup may get this answer.
  bool may_answer(std::uint32_t key, std::string_view answer, const TierState* shown) const;

  /// What is wrong with what the tier holds after a command, in words; nothing if it may hold that.
  /// Called last, once per command.
  std::optional<std::string> check(const TierState* shown);

 private:
  using Keys = std::set<std::uint32_t>;

  struct Result {
    bool may_be_done = true;
    bool may_fail = true;
    std::optional<std::uint32_t> load_of;  ///< the one key; nothing once its file was touched
  };

  void touch_file(std::uint32_t key);

  bool is_healthy_ = true;
  Keys tried_;    ///< was stored, was tried to be, or was put there by others
  Keys doubted_;  ///< not to be found: a load failed or the size is wrong, and no more came
  Keys damaged_;  ///< at any time
  Keys gone_;     ///< by this command
  std::optional<Keys> held_;                 ///< after the command before, if it was shown
  std::map<std::uint32_t, Result> results_;  ///< of jobs that are over and not reported
  bool ends_early_ = false;      ///< a file was to end before its end, which makes it a bad one
  bool may_miss_files_ = false;  ///< a fault hid an existing file
  std::ptrdiff_t num_faults_of_remove_ = 0;
  std::ptrdiff_t num_written_by_others_ = 0;
};

}  // namespace kvfence::tiering
