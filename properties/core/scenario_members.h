#pragma once

/// A scenario's numbers, lists and names, wherever they stand: what a change that several commands
/// have to make together is written with. In each, step counts from 1; 0 is the configuration. The
/// members of the configuration come first, then those of each command in order; after a list of
/// declared structs each of their members. Where the scenario may change, what is visited may too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/core/scenario.h"

namespace kvfence {

void for_each_member(const Scenario& scenario,
                     const std::function<void(const MemberRef&, std::size_t step)>& visit);

/// Lists of numbers.
void for_each_list(
    const Scenario& scenario,
    const std::function<void(std::vector<std::uint32_t>& list, Domain, std::size_t step)>& visit);

/// Numbers of 32 bits, those in lists and their records included.
void for_each_number(
    const Scenario& scenario,
    const std::function<void(std::uint32_t& number, Domain, std::size_t step)>& visit);

/// Names of requests, those in lists included.
void for_each_request(const Scenario& scenario,
                      const std::function<void(std::string& name, std::size_t step)>& visit);

}  // namespace kvfence
