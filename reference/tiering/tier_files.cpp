#include "reference/tiering/tier_files.h"

#include <algorithm>
#include <utility>

#include "reference/tiering/file_tier.h"

namespace kvfence::reference {
namespace {

class ModelledTierFiles final : public TierFiles {
 public:
  explicit ModelledTierFiles(PrimaryKvView primary)
      : tier_(tier_files_config("/modelled"), primary) {}

  LookupResult lookup(OffloadKeyView key) override { return tier_.lookup(key, {"any"}); }

  bool store(const TierJob& job) override {
    tier_.submit_store(job);
    return result_of(job);
  }

  bool load(const TierJob& job) override {
    tier_.submit_load(job);
    return result_of(job);
  }

  void begin(FaultPlan plan) override { tier_.begin(std::move(plan)); }

  void restart(bool overtaken) override {
    tier_.end();
    if (overtaken) tier_.act_as_writer(0, WriterAct::kClaims);
    tier_.open();
  }

  void add(OffloadKeyView key, std::span<const std::byte> block) override {
    tier_.add_file(key, block);
  }

  void delete_file(OffloadKeyView key) override { tier_.delete_file(key); }

  void flip_bit(OffloadKeyView key, std::uint64_t bit) override {
    const std::uint64_t num_bits = has_file(key) ? 8 * tier_.file_bytes(key) : 0;
    if (num_bits > 0) tier_.flip_bit(key, bit % num_bits);
  }

  void resize_file(OffloadKeyView key, std::uint64_t bytes) override {
    if (has_file(key)) tier_.resize_file(key, bytes);
  }

  void copy_file(OffloadKeyView from, OffloadKeyView to) override {
    if (has_file(from)) tier_.copy_file(from, to);
  }

  void act_as_writer(std::uint32_t number, WriterAct act) override {
    tier_.act_as_writer(number, act);
  }

  std::vector<OffloadKey> keys_with_file() override { return tier_.keys_with_file(); }

  const std::vector<std::string>& writers() override { return writers_ = tier_.writers(); }

  void add_to(StateHash& hash) const override { hash.add(tier_); }

 private:
  bool has_file(OffloadKeyView key) const {
    const std::vector<OffloadKey> keys = tier_.keys_with_file();
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  bool result_of(const TierJob& job) {
    std::vector<JobResult> results;
    tier_.get_finished_jobs(results);
    return results == std::vector<JobResult>{{job.job_id, true}};
  }

  FileTier tier_;
  std::vector<std::string> writers_;
};

}  // namespace

std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary) {
  return std::make_unique<ModelledTierFiles>(primary);
}

}  // namespace kvfence::reference
