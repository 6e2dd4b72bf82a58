#include "properties/tiering/file_tier_model.h"

#include <algorithm>
#include <variant>

#include "contract/core/lists.h"
#include "properties/core/invariant_values.h"

namespace kvfence::tiering {

void FileTierModel::take_in(const Command& command) {
  if (const auto* added = std::get_if<TierAdd>(&command)) {
    for (const std::uint32_t key : added->keys) touch_file(key);
  } else if (const auto* dropped = std::get_if<TierDrop>(&command)) {
    gone_.insert(dropped->keys.begin(), dropped->keys.end());
  } else if (const auto* faulty = std::get_if<TierFaults>(&command)) {
    is_healthy_ = false;
    for (const Fault& fault : faulty->faults) {
      num_faults_of_remove_ += fault.operation == FileOperation::kRemove;
      ends_early_ |= fault.operation == FileOperation::kRead &&
                     fault.fails_with == FileError::kNone && fault.num_bytes == 0;
      may_miss_files_ |= fault.fails_with == FileError::kENOENT;
    }
  } else if (const auto* writer = std::get_if<TierWriter>(&command)) {
    num_written_by_others_ +=
        writer->does == WriterAct::kWrites || writer->does == WriterAct::kStrays;
  } else if (std::holds_alternative<TierRestart>(command)) {
    // No file is doubtful now, nor will the report of an ended load make one so.
    doubted_.clear();
    for (auto& [job, result] : results_) result.load_of.reset();
  } else if (const auto* damage = std::get_if<TierDamage>(&command)) {
    is_healthy_ = false;
    touch_file(damage->key);
    damaged_.insert(damage->key);
    if (damage->damage == FileDamage::kTruncate || damage->damage == FileDamage::kGrow) {
      doubted_.insert(damage->key);
    }
  }
}

/// The file may be another one now, so the results of earlier loads say nothing about it.
void FileTierModel::touch_file(std::uint32_t key) {
  tried_.insert(key);
  doubted_.erase(key);
  for (auto& [job, result] : results_) {
    if (result.load_of == key) result.load_of.reset();
  }
}

void FileTierModel::finish(const Transfer& job, bool success, const TierState* shown) {
  if (results_.count(*job.job) > 0) return;
  Result result;
  if (!success) {
    result.may_be_done = false;
  } else {
    const auto is_there = [&](std::uint32_t key) { return contains(shown->held, key); };
    const bool all_there = shown && std::ranges::all_of(job.keys, is_there);
    const bool some_missing = shown && !all_there;
    const bool is_one = job.keys.size() == 1;
    if (job.promotion) {
      result.may_be_done = !(is_healthy_ && some_missing);
      result.may_fail = !(is_healthy_ && all_there);
      if (is_one && !may_miss_files_) result.load_of = job.keys.front();
    } else {
      for (const std::uint32_t key : job.keys) touch_file(key);
      const bool is_new = is_one && all_there && held_ && held_->count(job.keys.front()) == 0;
      result.may_be_done = !some_missing;
      result.may_fail = !is_healthy_ && !is_new;
    }
  }
  results_[*job.job] = result;
}

bool FileTierModel::report(std::uint32_t job, bool success) {
  const auto at = results_.find(job);
  if (at == results_.end()) return false;
  const Result result = at->second;
  results_.erase(at);
  if (result.load_of && !success) doubted_.insert(*result.load_of);
  return success ? result.may_be_done : result.may_fail;
}

bool FileTierModel::may_answer(std::uint32_t key, std::string_view answer,
                               const TierState* shown) const {
  const bool is_shown = shown && contains(shown->held, key);
  if (answer == "miss") return !(is_healthy_ && is_shown);
  if (answer != "hit") return true;
  return tried_.count(key) > 0 && doubted_.count(key) == 0 && (is_shown || !shown);
}

std::optional<std::string> FileTierModel::check(const TierState* shown) {
  const std::optional<Keys> before = std::move(held_);
  const Keys gone = std::move(gone_);
  held_.reset();
  gone_.clear();
  if (!shown) return std::nullopt;
  held_.emplace(shown->held.begin(), shown->held.end());
  for (const std::uint32_t key : *held_) {
    if (tried_.count(key) == 0) return "file " + std::to_string(key) + ", which nobody stored";
  }
  if (before && !ends_early_) {
    for (const std::uint32_t key : *before) {
      if (held_->count(key) > 0 || gone.count(key) > 0 || damaged_.count(key) > 0) continue;
      return "no file " + std::to_string(key) + ", which was whole";
    }
  }
  const auto num_temporary = std::ranges::count_if(
      shown->writers, [](const std::string& name) { return name.ends_with(".tmp"); });
  if (num_temporary > num_faults_of_remove_ + num_written_by_others_) return "temporary files";
  return std::nullopt;
}

}  // namespace kvfence::tiering
