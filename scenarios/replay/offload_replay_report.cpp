#include "scenarios/replay/replay_reports.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "scenarios/replay/plot.h"
#include "scenarios/replay/svg_writer.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOptimum = "optimum";

/// A column of the table or line of the chart: the hit rate at each capacity.
struct Column {
  std::string name;
  std::vector<std::uint64_t> found;
};

/// The policies, then the optimum. A run that ended early has the points that are complete.
std::vector<Column> columns_of(const OffloadReplayResult& result) {
  std::vector<Column> columns;
  for (std::size_t k = 0; k < result.policies.size(); ++k) {
    Column& column = columns.emplace_back();
    column.name = to_text(result.policies[k]);
    for (const OffloadPoint& point : result.points) {
      if (k < point.results.size()) column.found.push_back(point.results[k].found);
    }
  }
  Column& optimum = columns.emplace_back();
  optimum.name = kOptimum;
  for (const OffloadPoint& point : result.points) optimum.found.push_back(point.optimum);
  return columns;
}

Json to_object(const OffloadReplayResult& result, std::uint64_t found) {
  return {{"found", found},
          {"hit_rate", result.cpu_hit_rate(found)},
          {"hit_rate_of_both_tiers", result.hit_rate(found)}};
}

}  // namespace

std::string to_table(const OffloadReplayResult& result) {
  constexpr int kGap = 4;
  const std::vector<Column> columns = columns_of(result);
  const auto width = static_cast<int>(10 * columns.size());
  std::string out =
      formatted("%10s%*s%*s%*s\n", "", width, "CPU tier", kGap, "", width, "both tiers");
  std::string names;
  for (const Column& column : columns) names += formatted("%10s", column.name.c_str());
  out += formatted("%10s", "cpu_blocks") + names + std::string(kGap, ' ') + names + "\n";
  for (std::size_t row = 0; row < result.points.size(); ++row) {
    std::string of_asked;
    std::string of_all;
    for (const Column& column : columns) {
      const bool is_there = row < column.found.size();
      const std::uint64_t found = is_there ? column.found[row] : 0;
      of_asked += formatted("%10s", is_there ? percent(result.cpu_hit_rate(found)).c_str() : "-");
      of_all += formatted("%10s", is_there ? percent(result.hit_rate(found)).c_str() : "-");
    }
    out += formatted("%10u", result.points[row].cpu_blocks) + of_asked + std::string(kGap, ' ') +
           of_all + "\n";
  }
  out += formatted("%10s%*s%*s%*s\n", "no limit", width,
                   percent(result.cpu_hit_rate(result.found_max)).c_str(), kGap, "", width,
                   percent(result.hit_rate(result.found_max)).c_str());
  const OffloadRequests& traffic = result.traffic;
  out += formatted("\n%zu requests, %llu blocks: %llu found in the GPU tier (%s), %llu asked of ",
                   traffic.requests.size(), wide(traffic.num_blocks), wide(traffic.num_gpu_hits),
                   percent(result.hit_rate(0)).c_str(), wide(traffic.num_asked()));
  out += "the CPU tier\n";
  if (traffic.too_large > 0) {
    out +=
        formatted("%zu requests left out: more blocks than the GPU tier has\n", traffic.too_large);
  }
  return out;
}

std::string to_csv(const OffloadReplayResult& result) {
  std::string out =
      "cpu_blocks,policy,asked,found,hit_rate,hit_rate_of_both_tiers,stored,evicted,refused\n";
  const auto row = [&](const OffloadPoint& point, const std::string& name, std::uint64_t found) {
    out += formatted("%u,%s,%llu,%llu,%.6f,%.6f", point.cpu_blocks, name.c_str(),
                     wide(result.traffic.num_asked()), wide(found), result.cpu_hit_rate(found),
                     result.hit_rate(found));
  };
  for (const OffloadPoint& point : result.points) {
    for (std::size_t k = 0; k < point.results.size(); ++k) {
      const OffloadTierResult& tier = point.results[k];
      row(point, std::string(to_text(result.policies[k])), tier.found);
      out +=
          formatted(",%llu,%llu,%llu\n", wide(tier.stored), wide(tier.evicted), wide(tier.refused));
    }
    row(point, kOptimum, point.optimum);
    out += ",,,\n";
  }
  return out;
}

std::string to_json(const OffloadReplayResult& result) {
  const OffloadRequests& traffic = result.traffic;
  Json object = {
      {"requests", traffic.requests.size()}, {"too_large", traffic.too_large},
      {"blocks", traffic.num_blocks},        {"gpu_hits", traffic.num_gpu_hits},
      {"asked", traffic.num_asked()},        {"no_limit", to_object(result, result.found_max)},
      {"capacities", Json::array()}};
  for (const OffloadPoint& point : result.points) {
    Json& row = object["capacities"].emplace_back(Json{{"cpu_blocks", point.cpu_blocks}});
    for (std::size_t k = 0; k < point.results.size(); ++k) {
      const OffloadTierResult& tier = point.results[k];
      Json& of_policy = row[to_text(result.policies[k])] = to_object(result, tier.found);
      of_policy["stored"] = tier.stored;
      of_policy["evicted"] = tier.evicted;
      of_policy["refused"] = tier.refused;
    }
    row[kOptimum] = to_object(result, point.optimum);
  }
  return object.dump();
}

std::string to_svg(const OffloadReplayResult& result) {
  constexpr Plot::Area kArea{80, 830, 60, 360};
  constexpr double kTickDistance = 52;
  SvgWriter svg = titled_svg(420, "Hit rate of the CPU tier over its capacity");

  std::vector<double> x;
  for (const OffloadPoint& point : result.points) x.push_back(std::log10(point.cpu_blocks));
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const Plot::Range range = x.empty() ? Plot::Range{0, 1} : Plot::Range{*least, *most + 0.05};
  const double rate_max = result.cpu_hit_rate(result.found_max);
  const double y_max = std::min(rate_max * 1.15 + 0.001, 1.0);
  Plot plot(svg, kArea, range, y_max);

  std::vector<double> ticks = x;
  std::sort(ticks.begin(), ticks.end());
  double last_tick = kArea.left - kTickDistance;
  for (const double tick : ticks) {
    if (plot.x(tick) - last_tick < kTickDistance) continue;
    plot.x_tick(tick, formatted("%.0f", std::pow(10, tick)));
    last_tick = plot.x(tick);
  }
  plot.rate_ticks(rate_max, "no capacity can exceed");

  const std::vector<Column> columns = columns_of(result);
  double legend = 0;
  for (const Column& column : columns) {
    const std::string_view color = column.name == kOptimum ? kCachedColor
                                   : column.name == "lru"  ? kReferencedColor
                                                           : kAccentColor;
    std::vector<SvgPoint> line;
    for (std::size_t k = 0; k < column.found.size(); ++k) {
      line.push_back({x[k], result.cpu_hit_rate(column.found[k])});
    }
    std::sort(line.begin(), line.end(),
              [](const SvgPoint& a, const SvgPoint& b) { return a.x < b.x; });
    plot.polyline(line, color);
    for (const SvgPoint& point : line) svg.circle({plot.x(point.x), plot.y(point.y)}, 3.5, color);
    plot.legend(legend, color,
                column.name == kOptimum ? "optimum (Belady, with bypass)" : column.name);
    legend += 70;
  }
  plot.frame("blocks of the CPU tier (logarithmic)", "found of what is asked");
  return svg.finish();
}

}  // namespace kvfence
