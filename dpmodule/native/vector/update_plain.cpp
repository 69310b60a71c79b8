// Steps of optimizers for machines without AVX2.
#include "update_lanes.hpp"

#include "lanes_plain.hpp"
#include "sweep.hpp"
#include "update_rules.hpp"

dpmodule::vector::Update dpmodule::vector::update_plain() { return step; }
