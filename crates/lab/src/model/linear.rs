//! Solves small systems of linear equations, by elimination with pivots.

/// Solves `matrix · x = right`. `None` if the matrix has no inverse.
pub(super) fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| {
            matrix[*a][column]
                .abs()
                .total_cmp(&matrix[*b][column].abs())
        })?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (done, below) = matrix.split_at_mut(column + 1);
        let top = &done[column];
        if top[column] == 0.0 || !top[column].is_finite() {
            return None;
        }
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[column] / top[column];
            for (value, above) in row.iter_mut().zip(top).skip(column) {
                *value -= factor * above;
            }
            right[column + 1 + offset] -= factor * right[column];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|k| matrix[row][k] * right[k]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_what_needs_a_pivot_and_refuses_what_has_no_solution() {
        let matrix = vec![vec![0.0, 2.0], vec![4.0, 1.0]];
        assert_eq!(solve(matrix, vec![6.0, 11.0]), Some(vec![2.0, 3.0]));
        let matrix = vec![vec![1.0, 2.0], vec![2.0, 4.0]];
        assert_eq!(solve(matrix, vec![1.0, 1.0]), None);
    }
}
