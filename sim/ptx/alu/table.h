// One instruction set's tables, gathered.
#include "sim/ptx/alu/kernel.h"

#define TF_PTX_JOIN2(a, b) a##b
#define TF_PTX_JOIN(a, b) TF_PTX_JOIN2(a, b)

namespace tensor_fusion::sim::ptx {

const AluTable* TF_PTX_JOIN(alu_table_, TF_PTX_ISA)() {
  static const AluTable table{TF_PTX_ISA::find_integer, TF_PTX_ISA::find_logic,   TF_PTX_ISA::find_floating,
                              TF_PTX_ISA::find_half,    TF_PTX_ISA::find_convert, TF_PTX_ISA::find_math,
                              TF_PTX_ISA::find_memory,  TF_PTX_ISA::mask_table};
  return &table;
}

}  // namespace tensor_fusion::sim::ptx
