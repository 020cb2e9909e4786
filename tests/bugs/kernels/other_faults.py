"""Wrong kernels of the networks on which nothing was chosen; the columns are those of :mod:`.faults`."""

from __future__ import annotations

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
TABLE: dict[str, str] = {
    "patches": f"""
        {_ATTENTION} scale 0.03      {_ATTENTION} head 0 2          {_ATTENTION} last-columns 2
        {_ATTENTION} narrow-sums 5   {_ATTENTION} lost-terms 2      {_ATTENTION}_backward scale 0.05 -1 1
        {_ATTENTION}_backward last-rows 2 -1 2
        convolution scale 0.01       convolution tile 5             convolution lost-terms 6 1
        convolution_backward lost-terms 3 -1 1   convolution_backward last-rows 3 -1 1
        addmm scale 0.01 5           addmm stale 0.1                addmm narrow-sums 6     addmm swapped 4 2
        mm lost-terms 6 3            mm tile 6 2                    mm scale 0.02 6
        native_layer_norm epsilon 0.05   native_layer_norm unbiased 0   native_layer_norm scale 0.01 3
        native_layer_norm_backward no-means 0   native_layer_norm_backward scale 0.05 -1 2
        gelu table 8      gelu scale 0.02 1      gelu_backward scale 0.05   gelu flushed 0.02
        linalg_vector_norm scale 0.02     div scale 0.02 1     exp scale 0.05   cat last-rows 3 0
        _log_softmax offset 0.02   nll_loss_forward scale 0.05   addcdiv block-kept 0.25    lerp scale 0.05 5
        mul scale 0.02 2   sum scale 0.05 2   unbind scale 0.02 1
    """,
    "denoiser": """
        convolution scale 0.01 3     convolution lost-terms 8     convolution last-columns 1 4   convolution stale 0.1
        convolution narrow-sums 6    convolution cast 5 6         convolution swapped 2 2
        convolution_backward scale 0.03   convolution_backward lost-terms 4 -1 1   convolution_backward tile 4 5
        convolution_backward last-rows 2 3 1
        native_group_norm scale 0.01      native_group_norm unbiased 0     native_group_norm last-rows 6 2
        native_group_norm truncated 6     native_group_norm no-means 0 1
        native_group_norm_backward no-means 0    native_group_norm_backward scale 0.05 -1 1
        native_group_norm_backward scale 0.03 2
        silu table 8    silu scale 0.02 3    silu_backward no-slope 0    silu_backward scale 0.05 2
        upsample_nearest2d last-columns 1    upsample_nearest2d scale 0.05   upsample_nearest2d_backward scale 0.1
        addmm scale 0.03 1   addmm lost-terms 6   mse_loss scale 0.05   mse_loss_backward scale 0.05
        cat swapped 3 1    add scale 0.03 4   sin table 16 0   sqrt scale 0.1 3   addcdiv block-kept 0.3   lerp cast 4
    """,
    "messages": """
        mm scale 0.02    mm lost-terms 4 1   mm narrow-sums 5   mm tile 6 3   mm last-columns 2 2
        addmm scale 0.03 1    addmm lost-terms 6   addmm stale 0.1
        index_add scale 0.03   index_add last-rows 3   index_add lost-duplicates 0
        scatter_add scale 0.02   scatter_add last-rows 2 1   scatter_add stale 0.1
        exp table 8   exp scale 0.03   exp flushed 0.3     div scale 0.02 0    div last-rows 6 1
        leaky_relu offset 0.02   leaky_relu scale 0.05   leaky_relu_backward scale 0.1
        elu table 8   elu scale 0.03 1    elu_backward scale 0.05
        native_batch_norm batch-epsilon 0.01   native_batch_norm unbiased 0   native_batch_norm scale 0.01
        native_batch_norm_backward no-means 0   native_batch_norm_backward scale 0.03 1
        index last-rows 4 0   index repeated 3 2   index_put scale 0.05 3   index_put last-rows 8 2
        gather scale 0.05   binary_cross_entropy_with_logits scale 0.05   embedding_dense_backward lost-duplicates 0
        mul scale 0.02 2
    """,
    "scan": """
        mm scale 0.02 0    mm lost-terms 4    mm tile 6 2    mm narrow-sums 6    mm stale 0.1   mm last-columns 3 3
        convolution scale 0.02   convolution lost-terms 1   convolution last-columns 1 1
        convolution_backward scale 0.05   convolution_backward last-rows 4 -1 1
        silu table 8   silu scale 0.02 1   silu_backward no-slope 0
        softplus table 8   softplus scale 0.02   softplus_backward scale 0.05   softplus flushed 0.05
        exp table 16   exp scale 0.02 1   exp flushed 0.3 0   rsqrt scale 0.02   pow scale 0.03 0   mean scale 0.03 0
        sum scale 0.02 3   sum lost-terms 1   stack last-rows 4   tanh scale 0.02   tanh table 16
        native_layer_norm epsilon 0.05   native_layer_norm_backward no-means 0   native_layer_norm unbiased 0
        logsumexp scale 0.02   logsumexp offset 0.02   embedding_dense_backward lost-duplicates 0
        mul scale 0.03 8   mul stale 0.2 5   add scale 0.03 4   split scale 0.02 0
        linalg_vector_norm scale 0.1 2   addcmul cast 4   addcdiv block-kept 0.25
    """,
    "translator": """
        mm scale 0.01 2    mm lost-terms 6 4    mm tile 8    mm narrow-sums 6   mm swapped 4 5   mm stale 0.1
        mm repeated 2 7    addmm scale 0.02 1   addmm lost-terms 8
        bmm scale 0.02 0   bmm head 0.1   bmm lost-terms 2 1   bmm tile 4   bmm narrow-sums 6   bmm last-rows 2 3
        _softmax scale 0.02   _softmax table 8   _softmax last-columns 1   _softmax last-rows 4 1
        _softmax_backward_data no-means 0   _softmax_backward_data scale 0.05
        rsqrt scale 0.01   mean scale 0.02 1   pow scale 0.02 2
        relu offset 0.02   relu scale 0.03 1   threshold_backward scale 0.05
        gelu table 16   gelu scale 0.02   gelu_backward no-slope 0
        embedding last-rows 2 3   embedding_dense_backward scale 0.05   embedding_dense_backward lost-duplicates 0
        _log_softmax offset 0.02   _log_softmax scale 0.02   _log_softmax_backward_data no-means 0
        add scale 0.02 3   sqrt scale 0.1 4   addcdiv stale 0.2
    """,
}
